"""What baselines read in place of text and dates."""

import json

import numpy as np
import pandas as pd
import pytest

import dsgp
from dsgp.errors import DataError
from pipelines.run.__main__ import run
from pipelines.run.config import validated
from pipelines.run.design import MOST_CATEGORIES, MOST_INDICATORS, Design

SITES = ["oak", "ash", "elm"]


def design_of(levels=None, zone=None, parts=("day of year", "weekday")):
    dates = {"day": {"zone": zone, "parts": list(parts)}}
    return Design(["x", "site", "day"], {"site": SITES if levels is None else levels}, dates)


def frame_of(n=50):
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2019-02-25") + pd.to_timedelta(rng.integers(0, 900, n), "D")
    return pd.DataFrame(
        {"x": rng.standard_normal(n), "site": rng.choice(SITES, n), "day": pd.Series(day)}
    )


def test_indicators_and_parts_of_dates_are_those_of_pandas():
    frame = frame_of()
    made = design_of()(frame)
    dummies = pd.get_dummies(frame["site"])[SITES].astype(float)
    np.testing.assert_array_equal(made[[f"site={site}" for site in SITES]], dummies)
    np.testing.assert_array_equal(made["day (weekday)"], frame["day"].dt.day_of_week)
    days = (frame["day"] - pd.Timestamp("1970-01-01")).dt.days
    np.testing.assert_array_equal(made["day"], days)
    leap = frame["day"].dt.is_leap_year
    np.testing.assert_array_equal(
        made["day (day of year)"][leap], frame["day"].dt.day_of_year[leap] - 1
    )
    assert design_of().indicators.tolist() == [False, True, True, True, False, False, False]


def test_levels_beyond_the_limits_share_what_is_left():
    levels = [f"l{k}" for k in range(400)]
    design, frame = design_of(levels), frame_of(402)
    frame["site"] = [*levels, "never seen", None]
    indicators = design(frame).filter(like="site=").to_numpy()
    assert indicators.shape == (402, MOST_INDICATORS)
    np.testing.assert_array_equal(indicators[:MOST_INDICATORS], np.eye(MOST_INDICATORS))
    assert not indicators[MOST_INDICATORS:].any()
    numbers, is_code = design.categories(frame)
    assert is_code.tolist() == [False, True, False, False, False]
    np.testing.assert_array_equal(numbers[:400, 1], np.minimum(np.arange(400), MOST_CATEGORIES))
    assert np.isnan(numbers[400:, 1]).all()
    (about_levels, about_dates) = design.descriptions()
    assert f"the other {400 - MOST_INDICATORS} of 400 levels" in about_levels
    assert f"{MOST_CATEGORIES} levels and one for the others" in about_levels
    assert about_dates == "day: days since 1970-01-01, day of year, weekday"


def test_names_that_clash_are_reported():
    frame = frame_of().rename(columns={"x": "site=ash"})
    design = Design(["site=ash", "site"], {"site": SITES}, {})
    with pytest.raises(
        DataError, match="'site=ash' has the name of a column that is made from another one"
    ):
        design(frame)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A target of a site, whose order by name says nothing, and of the day of the week."""
    rng = np.random.default_rng(1)
    n = 900
    sites = [f"s{k:03d}" for k in rng.permutation(40)]
    effect = dict(zip(sites, rng.standard_normal(40), strict=True))
    frame = pd.DataFrame({"site": rng.choice(sites, n), "x": rng.uniform(-1, 1, n)})
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), "D")
    weekend = (frame["day"].dt.day_of_week >= 5).to_numpy()
    frame["y"] = frame["site"].map(effect) + frame["x"] + weekend + 0.1 * rng.standard_normal(n)
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    frame.to_parquet(path)
    return path


def run_of(path, out, models, **further):
    document = {"load": {"data": str(path), "target": "y"}, "models": models, **further}
    return run(validated(document, "test"), out)


def test_every_method_reads_text_and_dates(table, tmp_path):
    pursuit = {"n_projections": 1, "n_starts": 1}
    report = run_of(
        table,
        tmp_path / "out",
        {
            "additive": {"additive": {"terms": {"day": "Levels(part=weekday)"}}},
            "both": {"additive": {}, "pursuit": {**pursuit, "fit_to": "residual"}},
            "pursuit": {"pursuit": {**pursuit, "terms": {"day": "Levels(part=weekday)"}}},
            "splines": {"baseline": "splines:8"},
            "boosting": {"baseline": "boosting"},
            "trees": {"baseline": "trees"},
        },
        report={"figures": False},
    )
    nmse = {name: entry["metrics"]["nmse"] for name, entry in report["models"].items()}
    assert nmse["additive"] < 0.02
    # Codes of the sites as numbers leave most of the variance: 0.6 and more.
    assert max(nmse["splines"], nmse["boosting"], nmse["trees"], nmse["pursuit"]) < 0.2
    made = dsgp.load(tmp_path / "out" / "models" / "pursuit" / "pursuit" / "model.zarr")
    assert list(made.projections_.columns) == ["x"]
    assert [term.name for term in made.terms_] == ["projection 1", "day (weekday)", "site"]
    text = (tmp_path / "out" / "report" / "report.md").read_text(encoding="utf-8")
    assert "* site: a column of zeros and ones for each of 40 levels\n" in text
    assert "* day: days since 1970-01-01, day of year, weekday\n" in text


def test_figures_name_levels(table, tmp_path):
    models = {"additive": {"additive": {"terms": {"x": ["Smooth", "Smooth(by=site)"]}}}}
    run_of(table, tmp_path / "out", models)
    model = dsgp.load(tmp_path / "out" / "models" / "additive" / "additive" / "model.zarr")
    figure = dsgp.plotting.plot_components(model)
    texts = {text.get_text() for ax in figure.axes for text in ax.get_xticklabels()}
    texts |= {
        text.get_text() for ax in figure.axes if ax.get_legend() for text in ax.get_legend().texts
    }
    assert any(text.startswith("s0") for text in texts)
    assert {term.name: term.bound.family for term in model.terms_}["x by site"] == "axis"
    assert (tmp_path / "out" / "report" / "additive" / "components.png").stat().st_size > 0


@pytest.mark.parametrize("structure", ["additive", "pursuit"])
def test_scoring_and_classifiers_read_text_and_dates(table, tmp_path, structure):
    path = tmp_path / "labels.parquet"
    frame = pd.read_parquet(table)
    frame.assign(y=np.where(frame["y"] > 0.5, "high", "low")).to_parquet(path)
    models = {"ours": {"scoring": {"structure": structure}}}
    if structure == "pursuit":
        search = {"n_projections": 1, "n_starts": 1}
        models["ours"]["scoring"] |= {"n_projections": 1, "terms": {"day": "Levels(part=weekday)"}}
        # Scoring in the projections of a least-squares search, and in the terms beside them.
        models["after"] = {"pursuit": search, "scoring": {}}
    report = run_of(
        path,
        tmp_path / "out",
        {**models, "splines": {"baseline": "splines"},
         "boosting": {"baseline": "boosting"}, "trees": {"baseline": "trees"}},
        task="classification",
        report={"figures": False},
    )  # fmt: skip
    for name, entry in report["models"].items():
        assert entry["metrics"]["error_rate"] < 0.25, name


def test_streamed_rows_give_the_same_projections(table, tmp_path):
    models = {"pursuit": {"pursuit": {"n_projections": 1, "n_starts": 1, "bins": 200}}}
    metrics = []
    for in_memory in (True, False):
        out = tmp_path / str(in_memory)
        report = run_of(
            table, out, models, encode={"in_memory": in_memory}, report={"figures": False}
        )
        metrics.append(report["models"]["pursuit"]["metrics"]["nmse"])
        assert not list(out.rglob("derived.parquet"))
        stored = json.loads((out / "encode" / "encoding.json").read_text(encoding="utf-8"))
        assert stored["numbers"]["dates"]["day"]["parts"] == ["day of year", "weekday"]
    assert metrics[0] == pytest.approx(metrics[1], rel=0.05)
