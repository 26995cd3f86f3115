"""Importance, slices and pages: what they draw is what the model says."""

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib.dates import ConciseDateFormatter

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    Levels,
    ProjectionPursuitGPRegressor,
    Tensor,
    load,
    variance_shares,
)
from dsgp.cli import main
from dsgp.errors import ParameterError
from dsgp.kernels import Matern32
from dsgp.plotting import plot_components, plot_importance, plot_report, plot_slices
from dsgp.plotting.style import CURVES, percent

RNG = np.random.default_rng(1)
N = 250
X = pd.DataFrame(
    {
        "a": RNG.uniform(-2, 2, N),
        "b": RNG.uniform(0, 10, N),
        "day": pd.Timestamp("2021-01-01") + pd.to_timedelta(RNG.integers(0, 300, N), "D"),
        "g": RNG.choice(["u", "v"], N),
    }
)
ELAPSED = (X["day"] - X["day"].min()).dt.days / 300
Y = X["a"] * (X["g"] == "u") + 0.1 * X["a"] * X["b"] + ELAPSED * X["b"] / 5
Y = Y + 0.2 * RNG.standard_normal(N)
TERMS = ["a", "b", "day", "g", Tensor("a", "g"), Tensor("a", "b"), Tensor("day", "b")]


@pytest.fixture(scope="module")
def model():
    return AdditiveGPRegressor(terms=TERMS).fit(X, Y)


def test_bars_and_lines_are_shares_with_their_intervals(model):
    shares = variance_shares(model).sort_values("share", ascending=False)
    ax = plot_importance(model, most=4).axes[0]
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == [*shares.index[:4], "3 other terms"]
    widths = [bar.get_width() for bar in ax.patches]
    rest = shares["share"].iloc[4:].sum()
    np.testing.assert_allclose(widths, 100 * np.append(shares["share"].iloc[:4], rest))
    (lines,) = [c for c in ax.collections if len(c.get_segments()) == 4]
    ends = np.array([segment[:, 0] for segment in lines.get_segments()])
    np.testing.assert_allclose(ends, 100 * shares[["low", "high"]].iloc[:4])
    kinds = [text.get_text().split(":")[0] for text in ax.get_legend().get_texts()]
    assert kinds == ["main effects", "interactions"]
    with pytest.raises(ParameterError, match="most"):
        plot_importance(model, most=0)


def test_slices_are_sums_of_components_with_their_band(model):
    ax = plot_slices(model, ("a", "b"), at=[2.0, 8.0], n_points=9).axes[0]
    for line, value in zip(ax.lines[1:], (2.0, 8.0), strict=True):
        at = X.iloc[:9].assign(a=line.get_xdata(), b=value)
        parts = model.components(at)["mean"]
        expected = parts.sel(term=["a", "a × b"]).sum("term")
        np.testing.assert_allclose(line.get_ydata(), expected, atol=1e-10)
    drawn = model.sample_components(at, 1500, random_state=0).sel(term=["a", "a × b"]).sum("term")
    band = ax.collections[1].get_paths()[0].vertices[:, 1]
    reach = np.ptp(band.reshape(-1)[[np.argmin(band), np.argmax(band)]])
    assert reach > 0
    low = [band_of(ax.collections[1], x)[0] for x in line.get_xdata()]
    high = [band_of(ax.collections[1], x)[1] for x in line.get_xdata()]
    std = (np.array(high) - np.array(low)) / (2 * 1.959964)
    np.testing.assert_allclose(std, drawn.std("sample"), rtol=0.12)


def band_of(filled, x):
    """Ends of a band at one of its inputs."""
    at = filled.get_paths()[0].vertices
    values = at[np.isclose(at[:, 0], x), 1]
    return values.min(), values.max()


def test_slices_pick_quantiles_levels_and_dates(model):
    legend = plot_slices(model, ("a", "b")).axes[0].get_legend()
    middle = np.quantile(X["b"], 0.5)
    texts = [text.get_text() for text in legend.get_texts()]
    assert len(texts) == 3
    assert float(texts[1].split("= ")[1]) == pytest.approx(middle, abs=0.6)
    texts = [t.get_text() for t in plot_slices(model, ("a", "g")).axes[0].get_legend().get_texts()]
    assert texts == ["g = u", "g = v"]
    figure = plot_slices(model, ("b", "day"), at=["2021-03-01"], with_main=False)
    assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == ["day = 2021-03-01"]
    at = ["2021-03-01 06:00", "2021-03-01 18:00"]
    legend = plot_slices(model, ("b", "day"), at=at, with_main=False).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [f"day = {date}" for date in at]
    along = plot_slices(model, ("day", "b")).axes[0].xaxis
    assert isinstance(along.get_major_formatter(), ConciseDateFormatter)


def test_slices_name_what_will_not_do(model):
    for columns, told in ((("b", "g"), "no interaction"), (("g", "a"), r"name it second, \('a'")):
        with pytest.raises(ParameterError, match=told):
            plot_slices(model, columns)
    with pytest.raises(ParameterError, match="two names"):
        plot_slices(model, "ab")
    with pytest.raises(ParameterError, match=r"column 'g' had not in the training rows: \['z'\]"):
        plot_slices(model, ("a", "g"), at=["u", "z"])


def test_maps_have_calendar_axes_and_one_scale_of_colours(model):
    names = ["a × b", "day × b", "a × g"]
    common = plot_components(model, terms=names, sort="column", scale="common")
    meshes = [ax.collections[0] for ax in common.axes if ax.get_label() != "<colorbar>"][:2]
    assert meshes[0].get_clim() == meshes[1].get_clim()
    assert isinstance(common.axes[2].xaxis.get_major_formatter(), ConciseDateFormatter)
    free = plot_components(model, terms=names, sort="column")
    meshes = [ax.collections[0] for ax in free.axes if ax.get_label() != "<colorbar>"][:2]
    assert meshes[0].get_clim() != meshes[1].get_clim()
    colours = [line.get_color() for line in free.axes[-1].lines[1:]]
    assert colours == list(CURVES[:2])
    caption = common.get_supxlabel()
    assert "hatched" in caption
    assert "dots:" in caption
    assert "grey ground" not in caption


def test_places_without_rows_are_grey():
    kept = (X["a"] > 0) | (X["b"] > 5)
    model = AdditiveGPRegressor(terms=[Tensor("a", "b")]).fit(X[kept], Y[kept])
    figure = plot_components(model)
    assert "grey ground: no rows near" in figure.get_supxlabel().replace("\N{NO-BREAK SPACE}", " ")
    assert np.isnan(np.ma.filled(figure.axes[0].collections[0].get_array(), np.nan)).any()


def test_pages_of_a_report_and_of_the_command(model, tmp_path, capsys):
    model.save(tmp_path / "model.zarr")
    assert len(plot_report(model, tmp_path / "pages.png", target="y")) == 2
    for k in (1, 2):
        picture = matplotlib.image.imread(tmp_path / f"pages-{k}.png")
        assert picture.shape[1] == round(8.27 * 150)
    main_of = ["plot", str(tmp_path / "model.zarr"), "--out", str(tmp_path / "pages.pdf")]
    run(main_of)
    assert "2 pages saved" in capsys.readouterr().out
    assert (tmp_path / "pages.pdf").read_bytes().startswith(b"%PDF")
    for arguments, told in (
        (main_of, "--overwrite"),
        ([*main_of[:3], str(tmp_path / "pages.svg")], "saved as .pdf or .png"),
        ([*main_of, "--level", "95"], "--level must lie between 0 and 1"),
        ([*main_of, "--max-terms", "0"], "--max-terms must be at least 1"),
        ([*main_of, "--scale", "both"], "--scale must be free or common"),
    ):
        assert run(arguments) == 1
        assert told in capsys.readouterr().err
    run([*main_of, "--overwrite"])
    (tmp_path / "pages.pdf").write_text("mine")
    assert run([*main_of, "--overwrite"]) == 1
    assert "dsgp plot did not write it" in capsys.readouterr().err
    assert (tmp_path / "pages.pdf").read_text() == "mine"


def test_terms_fill_as_many_pages_as_they_take_and_those_left_out_are_named():
    wide = pd.DataFrame(RNG.standard_normal((60, 30)), columns=[f"c{j:02d}" for j in range(30)])
    kernel = Matern32(lengthscale=1.0, variance=1.0)
    model = AdditiveGPRegressor(kernel, noise_variance=0.1, learner=None).fit(
        wide, wide.sum(axis=1)
    )
    shares = variance_shares(model)["share"].sort_values(ascending=False)

    def drawn(pages):
        titles = [ax.get_title() for page in pages for ax in all_axes(page)]
        return [title for title in titles if title in shares.index]

    pages = plot_report(model)
    assert len(pages) == 3
    assert drawn(pages) == list(shares.index)
    text = [text.get_text() for text in all_axes(pages[0])[1].texts]
    assert text[0].endswith(f"share {percent(shares.iloc[0])}")
    few = plot_report(model, max_terms=4)
    assert len(few) == 1
    assert drawn(few) == list(shares.index[:4])
    named = " ".join(few[0].subfigs[1].get_supxlabel().split())
    assert named.endswith("not drawn: " + ", ".join(shares.index[4:]))
    with pytest.raises(ParameterError, match="max_terms"):
        plot_report(model, max_terms=0)


def all_axes(page):
    """Axes of a page, those of its parts in order."""
    parts = page.subfigs or [page]
    return [ax for part in parts for ax in part.axes]


def run(arguments):
    try:
        main(arguments)
    except SystemExit as end:
        return end.code
    return 0


def test_reports_of_projections_classes_and_models_without_main_effects(tmp_path, capsys):
    numbers = X[["a", "b"]]
    pursuit = ProjectionPursuitGPRegressor(n_projections=1, random_state=0).fit(numbers, Y)
    assert len(plot_report(pursuit)) == 2
    three = AdditiveGPClassifier(multi_class="ovr").fit(numbers, np.digitize(Y, [0.0, 1.0]))
    with pytest.raises(ParameterError, match="each of its 3 classes"):
        plot_report(three)
    three.save(tmp_path / "three.zarr")
    assert run(["plot", str(tmp_path / "three.zarr"), "--out", str(tmp_path / "three.pdf")]) == 0
    assert "3 pages" in capsys.readouterr().out
    pair = AdditiveGPRegressor(terms=[Tensor("a", "b")]).fit(numbers, Y)
    assert len(plot_report(pair)) == 2


def test_explanations_of_the_command_are_those_of_python(model, tmp_path, capsys):
    model.save(tmp_path / "model.zarr")
    X.assign(id=range(N)).to_parquet(tmp_path / "rows.parquet", index=False)
    store, rows, out = (str(tmp_path / name) for name in ("model.zarr", "rows.parquet", "out.csv"))
    assert run(["explain", store, rows, "--keep", "id", "--out", out]) == 0
    told = pd.read_csv(out)
    parts = load(store).explain(X)
    np.testing.assert_allclose(told["prediction"], parts["prediction"], rtol=1e-12)
    names = list(told.columns)
    assert names[:3] == ["id", "prediction", "intercept"]
    contributions = told[[name for name in names if name.startswith("contribution_")]]
    np.testing.assert_allclose(contributions, parts["contribution"], atol=1e-12)
    total = told["intercept"] + contributions.sum(axis=1)
    np.testing.assert_allclose(total, told["prediction"], rtol=1e-12)
    assert run(["explain", store, rows, "--out", out, "--overwrite"]) == 0
    assert "explanations of 250 rows" in capsys.readouterr().out


def test_a_table_of_levels_and_a_weekday_are_no_calendar():
    terms = [Levels("g"), Tensor("day", "g", part="weekday")]
    model = AdditiveGPRegressor(terms=terms).fit(X, Y)
    figure = plot_components(model, terms=[model.terms_[1].name])
    assert "Monday" in [text.get_text() for text in figure.axes[0].get_xticklabels()]
