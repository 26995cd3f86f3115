"""Pages about fitted models: they stand alone, have every term, and say what the model says."""

import builtins
import json
import re
import sys
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    GridGP,
    Levels,
    Linear,
    ProjectionPursuitGPRegressor,
    Smooth,
    Tensor,
    load,
    variance_shares,
)
from dsgp.cli import main
from dsgp.errors import DataError, DataWarning, ParameterError, StorageError
from dsgp.kernels import Periodic

pytest.importorskip("vl_convert")
report = pytest.importorskip("dsgp.report")

NASTY = "<script>alert('x')</script> \"&\\"
RNG = np.random.default_rng(4)
N = 260
X = pd.DataFrame(
    {
        NASTY: RNG.uniform(-2, 2, N),
        "few": RNG.integers(0, 4, N).astype(float),
        "day": pd.Timestamp("2021-01-01") + pd.to_timedelta(RNG.integers(0, 700, N), "D"),
        "level": RNG.choice([f"<b>{k}</b>" for k in range(45)], N),
        "group": RNG.choice(["u", "v"], N),
        "gaps": np.where(RNG.uniform(size=N) < 0.3, np.nan, RNG.uniform(size=N)),
        "one": 1.0,
    }
)
Y = pd.Series(
    np.sin(2 * X[NASTY]) * (1 + (X["group"] == "u")) + X["few"] + 0.3 * RNG.standard_normal(N),
    name="price",
)
TERMS = [
    *(Smooth(NASTY), Linear(NASTY), Smooth("few"), Smooth("gaps"), "one"),
    *(Smooth("day"), Smooth("day", kernel=Periodic("year")), Levels("day", part="weekday")),
    *(Levels("level"), Levels("group")),
    *(Tensor(NASTY, "group"), Tensor(NASTY, "few"), Tensor("level", "group")),
]


class _Reader(HTMLParser):
    """Elements, attributes and text of a page; raises if tags do not match."""

    VOID = frozenset({"meta", "link", "img", "br", "input"})

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def attributes(self, name):
        return [attrs[name] for _, attrs in self.elements if name in attrs]

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def model():
    with pytest.warns(match="constant"):
        return AdditiveGPRegressor(terms=TERMS, missing="ignore").fit(X, Y)


@pytest.fixture(scope="module")
def text(model):
    return report.report_page(model, X.assign(price=Y).iloc[:90], "price")


def test_a_page_stands_alone_and_is_small(text):
    page = _Reader(text)
    assert len(text.encode()) < 5e6
    addresses = page.attributes("src") + page.attributes("href") + page.attributes("srcset")
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert not {"link", "iframe", "object", "base"} & {
        tag for tag, attrs in page.elements if attrs.get("rel") != "icon"
    }
    style = re.search(r"<style>(.*?)</style>", text, re.S)[1]
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = [a["content"] for _, a in page.elements if "http-equiv" in a]
    assert "default-src 'none'" in policy
    assert "@media print" in style
    assert "noscript" not in text
    assert all(page.attributes("alt"))


def test_every_term_is_there_with_a_chart_and_what_the_model_says_of_it(text, model):
    page = _Reader(text)
    assert page.attributes("data-name").count(NASTY) == 1
    assert sorted(page.attributes("data-name")) == sorted(term.name for term in model.terms_)
    shares = variance_shares(model)["share"]
    for name in model.model_.latent.names:
        assert " ".join(name.split()) in page.words
    assert f"{100 * shares['few']:.1f}%" in page.words
    ids = page.attributes("id")
    assert len(set(ids)) == len(ids)
    targets = [href[1:] for href in page.attributes("href") if href.startswith("#")]
    assert set(targets) <= set(ids)


def test_inputs_close_together_and_far_from_zero_stay_apart():
    n = 80
    table = pd.DataFrame(
        {
            "hour": pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(n), "h"),
            "far": 1e6 + RNG.permutation(n) / 8,
        }
    )
    y = np.sin(table["far"] - 1e6) + np.cos(np.arange(n) / 9)
    model = AdditiveGPRegressor(bins=None).fit(table, y + 1e6)
    page = report.report_page(model, table, y + 1e6)
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.S)[1])
    charts = {one["description"].split(" along ")[-1]: one for one in specs.values()}
    for name, unit, ends in (
        ("hour", 86_400_000, [19844.0, 19844.0 + (n - 1) / 24]),
        ("far", 1, [1e6, 1e6 + (n - 1) / 8]),
    ):
        chart = next(one for key, one in charts.items() if key.startswith(f"{name}, "))
        bars, function = chart["layer"]
        x = [row["x"] for row in function["data"]["values"]]
        assert len(set(x)) == len(x) >= 100
        assert len({row["x"] for row in bars["data"]["values"]}) == len(bars["data"]["values"])
        np.testing.assert_allclose(
            np.array([x[0], x[-1]]) / unit, ends, rtol=0, atol=1e-4 * (ends[1] - ends[0])
        )
    (cloud,) = [one for one in specs.values() if "against predicted" in one["description"]]
    low, high = cloud["layer"][-1]["encoding"]["x"]["scale"]["domain"]
    assert high - low == pytest.approx(np.ptp(y), rel=0.2)
    assert "1,000,000 to 1,000,009.88; 80 points" in _Reader(page).words
    assert "%H:%M" in page


def test_names_of_users_are_text_and_never_markup(text):
    page = _Reader(text)
    assert [tag for tag, _ in page.elements].count("script") == 3
    assert "<script>alert" not in text
    assert "<b>1</b>" not in text
    assert " ".join(NASTY.split()) in page.words
    assert "<b>7</b>" in page.words  # of the table of levels


def test_the_data_and_what_was_done_to_them(text):
    words = _Reader(text).words
    assert "left out: it has one value only" in words
    assert re.search(rf"gaps number .*? {int(X['gaps'].isna().sum())} gaps", words)
    assert re.search(r"day date 2021-01-0\d to 2022-1\d-\d\d", words)
    assert "category, 45 levels" in words
    assert "The 15 lowest and the 15 highest of 45 levels" in words
    assert "missing='ignore'" in words
    assert "Made on" in words


def test_the_noise_that_varies_has_its_columns_and_is_called_typical():
    table = pd.DataFrame(RNG.uniform(0, 1, (200, 2)), columns=["a", "spread"])
    y = np.sin(6 * table["a"]) + np.exp(table["spread"] - 2) * RNG.standard_normal(200)
    model = AdditiveGPRegressor(terms=[Smooth("a")], noise_terms=[Linear("spread")]).fit(table, y)
    words = _Reader(report.report_page(model)).words
    assert re.search(r"spread number \S+ 0 the noise variance", words)
    assert "noise, typical standard deviation" in words


def test_years_have_no_thousands_and_effects_beyond_a_chart_are_said_to_be_there():
    table = pd.DataFrame({"year": RNG.integers(1950, 2024, 300), "size": RNG.lognormal(8, 2, 300)})
    y = np.sin(table["year"] / 9) + np.log(table["size"])
    page = report.report_page(AdditiveGPRegressor().fit(table, y))
    words = _Reader(page).words
    assert re.search(r"year number 19\d\d to 20\d\d;", words)
    assert re.search(r"size number .*? to \d+,\d{3}", words)
    assert "from lowest to highest, includes them" in words
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.S)[1])
    axes = {
        one["description"]: one["layer"][1]["layer"][0]["encoding"]["x"]
        for one in specs.values()
        if " along " in one["description"]
    }
    (year,) = [axis for key, axis in axes.items() if "year" in key]
    assert year["axis"]["format"] == "f"
    assert year["title"] == "year"


def test_accuracy_is_that_of_the_predictions(text, model):
    rows, y = X.iloc[:90], Y.iloc[:90]
    mean, std = model.predict(rows, return_std=True, include_noise=True)
    words = _Reader(text).words
    assert "Accuracy on 90 held-out rows" in words
    rmse = float(np.sqrt(np.mean((y - mean) ** 2)))
    assert f"RMSE {rmse:.3g} {np.std(y):.3g}" in words
    inside = np.mean(np.abs(y - mean) <= 1.959963984540054 * std)
    assert f"{inside:.1%}" in words
    r_squared = 1 - np.mean((y - mean) ** 2) / np.var(y)
    assert f"R² {r_squared:.1%} 0.0%" in words


def test_classes_have_their_probabilities_judged(tmp_path):
    names = ["a", "b", "c"]
    table = pd.DataFrame(RNG.uniform(-1, 1, (300, 2)), columns=["x", "z"])
    labels = np.array(names)[
        np.clip(np.round(table["x"] + 1 + 0.3 * RNG.standard_normal(300)), 0, 2).astype(int)
    ]
    model = AdditiveGPClassifier().fit(table, labels)
    path = tmp_path / "classes.html"
    model.report(path, table, labels, target="kind")
    page = _Reader(path.read_text(encoding="utf-8"))
    accuracy = np.mean(model.predict(table) == labels)
    assert f"accuracy {accuracy:.1%} {max(np.mean(labels == n) for n in names):.1%}" in page.words
    for name in names:
        assert f"Do probabilities of “{name}” come true?" in page.words
        assert f"Terms: class {name}" in page.words
    assert page.attributes("data-name").count("x") == 3
    ids = page.attributes("id")
    assert len(set(ids)) == len(ids)
    with pytest.raises(DataError, match="classes that the fit did not"):
        model.report(path, table, np.where(labels == "a", "new", labels))
    with pytest.raises(ParameterError, match="exposure is of models of counts"):
        model.report(path, table, labels, exposure=np.ones(300))


def test_counts_with_exposures_and_rows_without_a_target(tmp_path):
    table = pd.DataFrame({"x": RNG.uniform(-1, 1, 300), "years": RNG.uniform(0.5, 2, 300)})
    counts = RNG.poisson(table["years"] * np.exp(1 + table["x"])).astype(float)
    model = GeneralizedAdditiveGP("poisson").fit(table[["x"]], counts, exposure=table["years"])
    some = table.assign(n=counts)
    some.loc[:9, "n"] = np.nan
    path = tmp_path / "counts.html"
    model.report(path, some, "n", exposure="years")
    words = _Reader(path.read_text(encoding="utf-8")).words
    assert "10 held-out rows without an observed target were left out" in words
    kept = some.iloc[10:]
    explained = model.score(kept, kept["n"], exposure=kept["years"])
    assert f"D² {explained:.1%}" in words
    assert "the mean × " in words  # effects as factors


@pytest.mark.filterwarnings("ignore::dsgp.errors.DataWarning")
def test_projections_a_remainder_and_no_term_at_all():
    table = pd.DataFrame(RNG.uniform(-1, 1, (200, 3)), columns=list("abc"))
    y = np.sin(2 * table["a"] + table["b"]) + 0.1 * RNG.standard_normal(200)
    for fitted, said in (
        (ProjectionPursuitGPRegressor(random_state=0, n_projections=1), "random_state=0"),
        (AdditiveGPRegressor(remainder=True), "random_state=None"),
    ):
        words = _Reader(report.report_page(fitted.fit(table, y))).words
        assert all(name in words for name in fitted.model_.latent.names)
        assert said in words
        assert "made without held-out rows" in words
    constant = AdditiveGPRegressor().fit(np.ones((20, 1)), np.arange(20.0))
    assert "predicts a constant" in _Reader(report.report_page(constant)).words


def test_skewed_residuals_are_said_in_summary_and_page_and_kept(tmp_path):
    random = np.random.default_rng(0)
    table = pd.DataFrame({"a": random.uniform(size=400)})
    y = pd.Series(np.sin(5 * table["a"]) + random.exponential(size=400), name="cost")
    with pytest.warns(DataWarning, match="the residuals of the target 'cost' are strongly skewed"):
        model = AdditiveGPRegressor().fit(table, y)
    said = "esiduals of the target 'cost' are strongly skewed"
    assert said in model.summary()
    model.save(tmp_path / "model.zarr")
    for one in (model, load(tmp_path / "model.zarr")):
        assert f"R{said}" in _Reader(report.report_page(one)).words
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)  # what is left of a line is rounding
        AdditiveGPRegressor(terms=[Linear("a")]).fit(table, 1e3 + 2 * table["a"])
    # Neither the unit of the target nor a factor common to all weights changes that.
    with pytest.warns(DataWarning, match="strongly skewed"):
        AdditiveGPRegressor().fit(table, 1e6 * y, sample_weight=np.full(400, 1e-20))
    even = AdditiveGPRegressor().fit(table, np.sin(5 * table["a"]) + random.standard_normal(400))
    assert "skewed" not in _Reader(report.report_page(even)).words


def test_what_cannot_be_reported_is_refused(tmp_path, model, monkeypatch):
    with pytest.raises(ParameterError, match=r"saved as \.html"):
        model.report(tmp_path / "a.pdf")
    with pytest.raises(ParameterError, match="both X and y"):
        model.report(tmp_path / "a.html", X)
    with pytest.raises(ParameterError, match="level"):
        model.report(tmp_path / "a.html", level=1.5)
    with pytest.raises(DataError, match="no column 'z'"):
        model.report(tmp_path / "a.html", X, "z")
    with pytest.raises(DataError, match="for each of the 260 held-out rows"):
        model.report(tmp_path / "a.html", X, Y[:4])
    with pytest.raises(DataError, match="no held-out row"):
        model.report(tmp_path / "a.html", X, np.full(N, np.nan))
    assert not (tmp_path / "a.html").exists()
    with pytest.raises(ParameterError, match="a model of terms"):
        report.report_page(_fitted_grid())

    load_module = builtins.__import__

    def without(name, *rest, **more):
        if name == "vl_convert":
            raise ImportError(f"No module named {name!r}", name=name)
        return load_module(name, *rest, **more)

    for name in [name for name in sys.modules if name.startswith("dsgp.report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'vl_convert: pip install "\.\[report\]"'):
        model.report(tmp_path / "a.html")


def _fitted_grid():
    xr = pytest.importorskip("xarray")
    field = xr.DataArray(np.sin(np.arange(12.0)), {"x": np.arange(12.0)}, ("x",))
    return GridGP().fit(field)


def test_the_command_writes_the_page_of_a_saved_model(tmp_path, capsys):
    table = pd.DataFrame({"x": RNG.uniform(-1, 1, 80), "z": RNG.uniform(-1, 1, 80)})
    table["y"] = table["x"] + 0.1 * RNG.standard_normal(80)
    AdditiveGPRegressor().fit(table, "y").save(tmp_path / "m.zarr")
    table.to_csv(tmp_path / "test.csv", index=False)
    out = tmp_path / "m.html"
    command = ["report", str(tmp_path / "m.zarr"), "-o", str(out)]
    held_out = ["--data", str(tmp_path / "test.csv"), "--target", "y"]
    _run([*command, *held_out, "--title", "My & model"])
    assert "report saved in" in capsys.readouterr().out
    page = _Reader(out.read_text(encoding="utf-8"))
    assert "My & model" in page.words
    assert "Accuracy on 80 held-out rows" in page.words
    assert page.attributes("data-name") == ["x", "z"]
    for options, words in (
        ([], "--overwrite"),
        (["--data", str(tmp_path / "test.csv"), "--overwrite"], "--target"),
        (["--exposure", "z", "--overwrite"], "--data"),
    ):
        assert _run([*command, *options]) == 1
        assert words in capsys.readouterr().err
    _run([*command, "--overwrite"])
    assert "Accuracy on" not in out.read_text(encoding="utf-8")
    out.write_text("mine")
    assert _run([*command, "--overwrite"]) == 1
    assert out.read_text() == "mine"
    assert load(tmp_path / "m.zarr").n_rows_ == 80


def _run(arguments):
    try:
        main(arguments)
    except SystemExit as end:
        return end.code
    except StorageError as error:  # pragma: no cover
        raise AssertionError from error
    return 0
