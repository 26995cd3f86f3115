"""Figures hold the numbers of the model, panel by panel, and touch no global state."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from scipy.stats import norm

from dsgp import AdditiveGPRegressor, Levels, Smooth, Tensor, component_bands, variance_shares
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.kernels import Matern32, Matern52
from dsgp.plotting import plot_components, plot_learning, plot_predictions
from dsgp.plotting.learning import _scale_by_decades
from dsgp.plotting.style import percent, short_names, span


def frame(n_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, n_rows),
            "noise": rng.standard_normal(n_rows),
            "site": rng.integers(0, 3, n_rows).astype(float),
            "dose": rng.standard_normal(n_rows),
        }
    )
    y = 2 * np.sin(X["dose"]) + 0.5 * X["site"] + 0.01 * X["age"]
    return X, y + 0.1 * rng.standard_normal(n_rows)


@pytest.fixture(scope="module")
def model():
    return AdditiveGPRegressor().fit(*frame())


def curve(ax):
    (line,) = [line for line in ax.lines if line.get_label() == "mean"]
    return line.get_xdata(), line.get_ydata()


def band(ax):
    (area,) = [area for area in ax.collections if area.get_label().endswith("band")]
    return area.get_paths()[0].vertices


def names(figure):
    return [ax.get_title() for ax in figure.axes]


# ---- components


def test_a_panel_holds_the_component_over_the_training_range(model):
    figure = plot_components(model, n_points=50, level=0.9)
    assert isinstance(figure, Figure)
    X, _ = frame()
    for ax in figure.axes:
        name = ax.get_title()
        if name == "site":
            continue
        x, mean = curve(ax)
        assert (x[0], x[-1], len(x)) == (X[name].min(), X[name].max(), 50)
        # each column at its own value, the others at any
        rows = pd.DataFrame({column: np.full(50, X[column].iloc[0]) for column in X}).assign(
            **{name: x}
        )
        expected = model.components(rows).sel(term=name)
        np.testing.assert_array_equal(mean, expected["mean"])
        reach = norm.ppf(0.95) * expected["std"].to_numpy()
        edge = band(ax)
        for at, low, high in zip(x, mean - reach, mean + reach, strict=True):
            there = edge[edge[:, 0] == at, 1]
            assert there.min() == pytest.approx(low, abs=1e-12)
            assert there.max() == pytest.approx(high, abs=1e-12)


def words(ax):
    """What stands between the name of a panel and the panel."""
    return ax.texts[0].get_text()


def test_panels_are_sorted_by_share_and_show_effect_and_share(model):
    figure = plot_components(model, target="strain (%)")
    shares = variance_shares(model)["share"]
    assert names(figure) == list(shares.sort_values(ascending=False).index)
    assert names(figure)[0] == "dose"
    _, mean = curve(figure.axes[0])
    low, high = words(figure.axes[0]).split(",")[0].replace("−", "-").split(" to ")
    assert float(low) == pytest.approx(mean.min(), abs=0.02 * np.ptp(mean))
    assert float(high) == pytest.approx(mean.max(), abs=0.02 * np.ptp(mean))
    assert words(figure.axes[0]).endswith(f"share {shares['dose']:.0%}")
    assert figure.get_supylabel() == "effect on strain (%)"


def test_numbers_have_as_many_digits_as_their_distance_has_a_use_for():
    assert span(-12.34, 5.1) == "−12 to 5"
    assert span(0.01234, 0.0567) == "0.012 to 0.057"
    assert span(-3e-9, 0.0) == r"$-3.0\times 10^{-9}$ to 0"
    assert span(0.0, 0.0) == "0"
    assert (percent(-0.021), percent(0.0001), percent(0.34)) == ("−2.1%", "<0.1%", "34%")


def test_a_scale_for_each_panel_or_one_for_all(model):
    free = plot_components(model)
    assert len({ax.get_ylim() for ax in free.axes}) == 4
    for ax in free.axes:
        bottom, top = ax.get_ylim()
        assert 0.5 * (top - bottom) < np.ptp([*limits_drawn(ax), 0.0])
    assert "each panel has its own scale" in caption_of(free)
    figure = plot_components(model, scale="common")
    assert "its own scale" not in caption_of(figure)
    limits = {ax.get_ylim() for ax in figure.axes}
    assert len(limits) == 1
    bottom, top = limits.pop()
    for ax in figure.axes:
        if ax.get_title() != "site":
            edge = band(ax)[:, 1]
            assert bottom < edge.min()
            assert edge.max() < top


def limits_drawn(ax):
    """Lowest and highest ends of what a panel shows."""
    if ax.get_title() == "site":
        _, _, (whiskers,) = ax.containers[0]
        ends = np.array(whiskers.get_segments())[:, :, 1]
        return ends.min(), ends.max()
    edge = band(ax)[:, 1]
    return edge.min(), edge.max()


def caption_of(figure):
    return " ".join(figure.get_supxlabel().split())


def test_the_largest_terms_are_drawn_and_the_others_named(model):
    figure = plot_components(model, max_terms=2)
    order = list(variance_shares(model)["share"].sort_values(ascending=False).index)
    assert names(figure) == order[:2]
    assert caption_of(figure).endswith(f"not drawn: {order[2]}, {order[3]}")
    assert "not drawn" not in caption_of(plot_components(model))
    with pytest.raises(ParameterError, match="max_terms"):
        plot_components(model, max_terms=0)


def test_terms_and_their_order_can_be_chosen(model):
    assert names(plot_components(model, sort="column")) == ["age", "noise", "site", "dose"]
    assert names(plot_components(model, terms=["site", "dose"], sort="column")) == ["site", "dose"]
    assert names(plot_components(model, terms=["site", "dose"])) == ["dose", "site"]
    one_below_another = plot_components(model, columns=1).axes
    assert len({round(ax.get_position().x0, 6) for ax in one_below_another}) == 1


def test_few_distinct_inputs_are_points_with_intervals_and_no_curve(model):
    (ax,) = plot_components(model, terms=["site"], level=0.9).axes
    X, _ = frame()
    rows = pd.DataFrame({name: np.full(3, X[name].iloc[0]) for name in X}).assign(site=[0, 1, 2.0])
    expected = model.components(rows).sel(term="site")
    (bars,) = ax.containers[:1]
    dots, _, (whiskers,) = bars
    np.testing.assert_array_equal(dots.get_data(), [[0, 1, 2], expected["mean"]])
    reach = norm.ppf(0.95) * expected["std"].to_numpy()
    ends = np.array(whiskers.get_segments())[:, :, 1]
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 2 * reach)
    assert not [line for line in ax.lines if line.get_label() == "mean"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "2"]
    inputs = [patch.get_height() for patch in ax.containers[1]]
    counts = X["site"].value_counts().sort_index().to_numpy()
    np.testing.assert_allclose(inputs / max(inputs), counts / counts.max())


def test_a_band_that_opens_in_the_tail_is_shown_whole_over_the_bulk():
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.uniform(0, 1, 400), rng.uniform(0, 1, 400)])
    X[0, 0] = 1.6  # one row far out, not so far that the range alone would be cut
    kernels = {
        "x0": Matern52(lengthscale=0.1, variance=25.0),
        "x1": Matern52(lengthscale=1.0, variance=1.0),
    }
    model = AdditiveGPRegressor(terms=kernels, noise_variance=0.01, learner=None).fit(
        pd.DataFrame(X, columns=["x0", "x1"]), np.sin(6 * X[:, 1])
    )
    for ax in plot_components(model, scale="common").axes:
        x, _ = curve(ax)
        edge = band(ax)[:, 1]
        bottom, top = ax.get_ylim()
        assert bottom < edge.min() < edge.max() < top
        assert x[-1] <= 1.0
        assert np.mean(X[:, int(ax.get_title()[1])] <= x[-1]) >= 0.99


def test_the_caption_says_what_band_grey_and_bars_are(model):
    text = " ".join(plot_components(model).get_supxlabel().split())
    for part in (
        "band: 95% credible",
        "points (few values): 95% credible intervals",
        "grey: the band contains 0 everywhere, no visible effect",
        "bars at the bottom: training rows",
    ):
        assert part in text
    X, _ = frame()
    alone = plot_components(model, X, terms=["dose"], level=0.5).get_supxlabel()
    assert "band: 50% credible" in alone
    assert "bars at the bottom: rows of X" in alone
    assert "grey" not in alone
    assert "points" not in alone


def half_widths(ax):
    """Half the width of each area or interval of a panel, by label."""
    widths = {}
    for area in ax.collections:
        if area.get_label().startswith("95%") and hasattr(area, "get_segments"):
            ends = np.array(area.get_segments())[:, :, 1]
            widths[area.get_label()] = (ends[:, 1] - ends[:, 0]) / 2
        elif area.get_label().startswith("95%"):
            edge = area.get_paths()[0].vertices
            at = np.unique(edge[:, 0])
            widths[area.get_label()] = np.array([np.ptp(edge[edge[:, 0] == x, 1]) / 2 for x in at])
    return widths


def test_simultaneous_bands_are_those_of_component_bands_around_pointwise_ones(model):
    (ax,) = plot_components(model, terms=["age"], bands="both", n_points=40).axes
    widths = half_widths(ax)
    x, _ = curve(ax)
    X, _ = frame()
    rows = pd.DataFrame({column: np.full(40, X[column].iloc[0]) for column in X}).assign(age=x)
    bands = component_bands(model, rows, n_samples=4000, random_state=1).sel(term="age")
    ratio = widths["95% band"] / widths["95% pointwise"]
    np.testing.assert_allclose(ratio, ratio[0])
    np.testing.assert_allclose(ratio[0] * norm.ppf(0.975), bands["factor"].item(), rtol=0.04)

    (alone,) = plot_components(model, terms=["age"], bands="simultaneous", n_points=40).axes
    np.testing.assert_array_equal(band(alone), band(ax))
    assert list(half_widths(alone)) == ["95% band"]


def test_intervals_of_all_few_values_hold_at_once(model):
    (narrow,) = plot_components(model, terms=["site"]).axes
    (ax,) = plot_components(model, terms=["site"], bands="both").axes
    _, _, (whiskers,) = narrow.containers[0]
    _, _, (wide,) = ax.containers[0]

    def lengths(lines):
        ends = np.array(lines.get_segments())[:, :, 1]
        return ends[:, 1] - ends[:, 0]

    inner = half_widths(ax)["95% pointwise"]
    np.testing.assert_allclose(2 * inner, lengths(whiskers))
    ratio = lengths(wide) / lengths(whiskers)
    np.testing.assert_allclose(ratio, ratio[0])
    assert 1 < ratio[0] < norm.ppf(1 - 0.025 / 3) / norm.ppf(0.975) + 0.05  # Bonferroni's


def test_the_caption_says_which_bands_are_drawn(model):
    def caption(bands):
        return " ".join(plot_components(model, bands=bands, n_points=10).get_supxlabel().split())

    assert "band: 95% credible, pointwise;" in caption("pointwise")
    assert "band: 95% credible, for a whole panel at once;" in caption("simultaneous")
    both = caption("both")
    assert "band: 95% credible, dark pointwise, light for a whole panel at once;" in both
    assert "credible intervals, thick pointwise, thin for a whole panel at once;" in both
    assert caption("both") == both


def test_curves_by_group_and_levels_have_simultaneous_bands():
    rng = np.random.default_rng(6)
    X = pd.DataFrame({"x": rng.uniform(0, 6, 200), "g": rng.choice(list("uvw"), 200)})
    y = np.sin(X["x"] + (X["g"] == "v")) + 0.3 * rng.standard_normal(200)
    model = AdditiveGPRegressor(terms=[Smooth("x", by="g"), Levels("g")]).fit(X, y)
    options = {"sort": "column", "n_points": 30}
    narrow, wide, both = (
        plot_components(model, bands=bands, **options).axes
        for bands in ("pointwise", "simultaneous", "both")
    )

    def heights(ax):
        return np.array([np.ptp(area.get_paths()[0].vertices[:, 1]) for area in ax.collections])

    assert len(narrow[0].collections) == len(wide[0].collections) == 3
    assert (heights(wide[0]) > heights(narrow[0])).all()
    np.testing.assert_allclose(heights(both[0])[::2], heights(wide[0]))
    np.testing.assert_allclose(heights(both[0])[1::2], heights(narrow[0]))
    assert len(half_widths(both[1])["95% pointwise"]) == 3


def test_inputs_are_bars_that_count_whole_numbers_evenly():
    years = np.repeat(np.arange(20.0, 81.0), 3)
    model = AdditiveGPRegressor(
        Matern52(lengthscale=10.0, variance=1.0), noise_variance=0.1, learner=None
    ).fit(years[:, None], np.sin(years))
    (ax,) = plot_components(model).axes
    (bars,) = [patch for patch in ax.patches if isinstance(patch, StepPatch)]
    heights, edges, _ = bars.get_data()
    np.testing.assert_array_equal(edges, np.arange(19.5, 82, 2))
    np.testing.assert_allclose(heights[:-1], heights[0])  # the last bar has one year left


def test_labels_of_thirty_long_names_do_not_collide():
    rng = np.random.default_rng(5)
    X = pd.DataFrame(
        rng.standard_normal((40, 30)),
        columns=[
            f"Mean_temperature_of_$sea$_surface_WATER_at_ten_metres_{j:02d}" for j in range(30)
        ],
    )
    model = AdditiveGPRegressor(
        Matern32(lengthscale=1.0, variance=1.0), noise_variance=0.1, learner=None
    ).fit(X, X.sum(axis=1))
    figure = plot_components(model, n_points=5, sort="column", max_terms=30)
    figure.savefig(BytesIO(), format="png")
    boxes = [ax.title.get_window_extent() for ax in figure.axes]
    boxes += [ax.texts[0].get_window_extent() for ax in figure.axes]
    assert not [
        (a, b) for a, one in enumerate(boxes) for b, other in enumerate(boxes)
        if a < b and one.overlaps(other)
    ]  # fmt: skip
    assert [name[-2:] for name in names(figure)] == [f"{j:02d}" for j in range(30)]


def test_a_count_has_a_curve_for_each_value_and_many_levels_few_colours():
    rng = np.random.default_rng(7)
    n = 400
    X = pd.DataFrame(
        {
            "x": rng.uniform(0, 6, n),
            "items": rng.integers(0, 3, n).astype(float),
            "shop": rng.choice([f"shop {k:02d}" for k in range(12)], n),
        }
    )
    y = np.sin(X["x"]) * X["items"] + 0.1 * rng.standard_normal(n)
    terms = [Tensor("x", "items"), Smooth("x", by="shop")]
    model = AdditiveGPRegressor(terms=terms).fit(X, y)
    counts, shops = plot_components(model, sort="column", n_points=20).axes
    assert [text.get_text() for text in counts.get_legend().get_texts()] == ["0", "1", "2"]
    assert (counts.get_legend().get_title().get_text(), counts.get_xlabel()) == ("items", "x")
    for line, value in zip(counts.lines[1:], (0.0, 1.0, 2.0), strict=True):
        rows = X.iloc[:20].assign(x=line.get_xdata(), items=value)
        expected = model.components(rows)["mean"].sel(term="x × items")
        np.testing.assert_allclose(line.get_ydata(), expected, atol=1e-10)
    legend = shops.get_legend()
    most = X["shop"].value_counts().sort_values(ascending=False, kind="stable").index[:5]
    assert len(legend.get_texts()) == len(shops.collections) == 5
    assert X["shop"].value_counts()[[t.get_text() for t in legend.get_texts()]].min() == (
        X["shop"].value_counts()[most].min()
    )
    assert "5 of 12 with most rows, grey: 7 others" in " ".join(
        legend.get_title().get_text().split()
    )
    assert sum(line.get_label() == "others" for line in shops.lines) == 7


def test_shortened_names_differ():
    names = ["Residential_Low_Density", "Residential_High_Density", "Commercial"]
    assert len(set(short_names(names, 12))) == 3
    assert max(map(len, short_names(names, 12))) <= 24


def test_a_term_that_is_not_clearly_different_from_zero_is_grey(model):
    colours = {
        ax.get_title(): to_hex(line.get_color())
        for ax in plot_components(model).axes
        for line in ax.lines
        if line.get_label() == "mean" or line.get_marker() == "o"
    }
    assert colours["noise"] != colours["dose"] == colours["site"]


def test_long_tails_are_cut():
    rng = np.random.default_rng(1)
    x = rng.standard_t(1, 500)
    model = AdditiveGPRegressor(
        Matern52(lengthscale=2.0, variance=1.0), noise_variance=0.1, learner=None
    ).fit(x[:, None], np.tanh(x))
    shown, _ = curve(plot_components(model).axes[0])
    assert np.abs(x).max() > 2 * np.abs(shown).max()
    assert np.mean((x >= shown[0]) & (x <= shown[-1])) >= 0.985


def test_given_rows_set_the_range(model):
    X, _ = frame()
    figure = plot_components(model, X[X["age"] < 40], terms=["age"])
    x, _ = curve(figure.axes[0])
    assert x[-1] == X["age"][X["age"] < 40].max()


@pytest.mark.parametrize(
    ("n_terms", "shape"), [(1, (1, 1)), (2, (1, 2)), (8, (2, 4)), (32, (8, 4))]
)
def test_any_number_of_terms_of_an_array(n_terms, shape):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, n_terms))
    model = AdditiveGPRegressor(
        Matern32(lengthscale=1.0, variance=1.0), noise_variance=0.1, learner=None
    ).fit(X, X.sum(axis=1))
    figure = plot_components(model, n_points=20, sort="column", max_terms=n_terms)
    assert names(figure) == [f"x{j}" for j in range(n_terms)]
    assert figure.axes[0].get_gridspec().get_geometry() == shape
    assert figure.get_supylabel() == "effect"
    x, mean = curve(figure.axes[-1])
    rows = np.zeros((20, n_terms))
    rows[:, -1] = x
    np.testing.assert_array_equal(mean, model.components(rows)["mean"][:, -1])


def test_a_constant_column_has_no_panel():
    X, y = frame()
    with pytest.warns(DataWarning, match="constant"):
        model = AdditiveGPRegressor().fit(X.assign(site=1.0), y)
    assert sorted(names(plot_components(model))) == ["age", "dose", "noise"]


def test_components_go_into_a_given_figure(model):
    whole = Figure((10, 4), layout="constrained")
    left, right = whole.subfigures(1, 2)
    assert plot_components(model, fig=right) is whole
    assert (len(left.axes), len(right.axes)) == (0, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": ["dos"]}, r"\['dos'\]; the model has the terms \['age'"),
        ({"terms": []}, "no term to draw"),
        ({"sort": "size"}, "'share' or 'column', got 'size'"),
        ({"level": 95}, "level must be a share between 0 and 1"),
        ({"n_points": 1}, "n_points must be at least 2"),
        ({"columns": 0}, "columns at least 1"),
        ({"scale": "log"}, "scale must be one of"),
        ({"bands": "wide"}, "bands must be one of"),
    ],
)
def test_options_out_of_range_are_named(model, options, message):
    with pytest.raises(ParameterError, match=message):
        plot_components(model, **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[["age"]], "no column 'dose'"),
        (lambda X: X.to_numpy()[:, :2], r"shape \(n_rows, 4\), got \(300, 2\)"),
        (lambda X: X.assign(dose=np.nan), "finite numbers in column 'dose'"),
    ],
)
def test_rows_that_do_not_fit_the_model_are_refused(model, change, message):
    with pytest.raises(DataError, match=message):
        plot_components(model, change(frame()[0]), terms=["dose"])


# ---- predictions


@pytest.mark.parametrize("n_rows", [50, 1000, 5000])
def test_predictions_are_annotated_and_drawn_by_density(n_rows):
    rng = np.random.default_rng(3)
    mean = rng.standard_normal(n_rows)
    y = mean + 0.5 * rng.standard_normal(n_rows)
    figure = plot_predictions(y, mean, np.full(n_rows, 0.5), y_train_mean=1.0, target="yield")
    ax, residuals = figure.axes[:2]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("observed yield", "predicted yield")
    (identity,) = [line for line in ax.lines if line.get_label() == "identity"]
    np.testing.assert_array_equal(identity.get_xdata(), identity.get_ydata())
    inside = np.abs(y - mean) <= norm.ppf(0.975) * 0.5
    error = np.sum((y - mean) ** 2) / np.sum((y - 1.0) ** 2)
    assert ax.get_title().split(",\n") == [
        f"mean squared error {percent(error)} of the variance",
        f"{inside.mean():.1%} of {n_rows:,} rows in 95% intervals",
    ]
    borders = [line.get_ydata()[0] for line in residuals.lines if line.get_label() == "border"]
    np.testing.assert_allclose(borders, norm.ppf([0.025, 0.975]))
    assert residuals.get_xlabel() == "predicted yield"
    if n_rows == 5000:  # hexagons hold every row once
        for panel in (ax, residuals):
            counts = [hexagons.get_array().sum() for hexagons in panel.collections]
            assert counts == [(~inside).sum(), inside.sum()]
    else:
        for panel, x, height in ((ax, y, mean), (residuals, mean, (y - mean) / 0.5)):
            dots = {line.get_label(): line for line in panel.lines}
            for label, rows in (("covered", inside), ("missed", ~inside)):
                np.testing.assert_array_equal(dots[label].get_data(), [x[rows], height[rows]])
    if n_rows == 50:
        covering, missing = (len(bars.get_segments()) for bars in ax.collections)
        assert (covering, missing) == (inside.sum(), (~inside).sum())
    (legend,) = figure.legends
    colours = {
        text.get_text(): to_hex(line.get_color())
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert len(set(colours.values())) == 3
    assert colours["observed = predicted"] == to_hex(identity.get_color())


def test_intervals_that_are_not_symmetric_are_drawn_and_counted_as_they_are():
    y, mean, std = np.array([1.0, 2.0, 9.0]), np.array([2.0, 2.0, 2.0]), np.full(3, 0.6)
    lower, upper = np.array([1.5, 1.5, 1.5]), np.array([3.0, 3.0, 10.0])
    axes = plot_predictions(y, mean, std, interval=(lower, upper)).axes[0]
    assert "66.7% of 3 rows in 95% intervals" in axes.get_title()
    bars = np.concatenate(
        [own.get_segments() for own in axes.collections if hasattr(own, "get_segments")]
    )
    np.testing.assert_allclose(np.sort(bars[:, :, 1], axis=0), np.c_[lower, np.sort(upper)])
    with pytest.raises(DataError, match=r"interval: expected two arrays of shape \(3,\)"):
        plot_predictions(y, mean, std, interval=(lower[:2], upper))


def test_residuals_too_far_out_stay_at_the_edge_and_are_counted():
    residuals = plot_predictions([0.0, 1.0, 50.0, 2.0], [0.0, 1.5, 0.0, 2.0], [1, 1, 1, 0]).axes[1]
    assert "1 rows beyond ±8 at the edge" in residuals.get_title()
    left = plot_predictions([0.0, 1.0], [0.0, 1.5], [1, 1], unit="cells").axes[0]
    assert "of 2 cells in 95% intervals" in left.get_title()
    heights = np.concatenate(
        [line.get_ydata() for line in residuals.lines if line.get_label() in ("covered", "missed")]
    )
    np.testing.assert_array_equal(sorted(heights), [-0.5, 0, 0, 8])


def test_predictions_go_into_given_axes():
    figure = Figure()
    left, right = figure.subfigures(1, 2)[1].subplots(1, 2)
    assert plot_predictions([1.0, 2.0], [1.0, 2.5], [0.1, 0.1], ax=right) is figure
    assert right.get_ylabel() == "predicted"
    assert len(right.get_legend().get_texts()) == 3
    assert not left.lines


def test_a_constant_target_has_an_error_though_no_nmse():
    figure = plot_predictions([1.0, 1.0], [1.0, 2.0], [0.1, 0.1])
    assert figure.axes[0].get_title().startswith("mean squared error 0.5")


def test_predictions_of_another_shape_are_refused():
    with pytest.raises(DataError, match="shape of y"):
        plot_predictions([1.0, 2.0], [1.0], [0.1, 0.1])


# ---- learning


@pytest.mark.parametrize("learner", ["marginal", "vbem", "em"])
def test_learning_holds_the_trace_and_its_gains(model, learner):
    if learner != model.learner:
        rng = np.random.default_rng(0)
        X = rng.uniform(-3, 3, (80, 2))
        model = AdditiveGPRegressor(learner=learner).fit(X, np.sin(X[:, 0]) + X[:, 1] / 3)
    figure = plot_learning(model)
    bound, gain = figure.axes
    trace = np.array(model.learner_trace_)
    np.testing.assert_array_equal(bound.lines[0].get_ydata(), trace)
    np.testing.assert_array_equal(bound.lines[0].get_xdata(), np.arange(len(trace)))
    gains = np.diff(trace)
    np.testing.assert_array_equal(gain.lines[0].get_ydata(), gains[gains > 0])
    assert gain.get_yscale() == "log"
    note = " ".join(figure.get_supxlabel().split())
    expected = {
        "vbem": "below the tolerance is followed by one more search from other initial",
        "em": "Small gains mean small steps",
        "marginal": "Only evaluations that improved on all before",
    }
    assert expected[learner] in note


def test_gains_of_one_size_have_plain_numbers_beside_them():
    gain = Figure().subplots()
    _scale_by_decades(gain, np.array([2.3, 2.6]))
    low, high = gain.get_ylim()
    numbers = [f"{tick:g}" for tick in gain.get_yticks() if low <= tick <= high]
    assert numbers == ["1", "2", "5"]
    labels = dict(zip(gain.get_yticks(), gain.get_yticklabels(), strict=True))
    assert [labels[float(number)].get_text() for number in numbers] == numbers


def test_without_a_learner_there_is_no_learning_to_draw():
    model = AdditiveGPRegressor(
        Matern52(lengthscale=1.0, variance=1.0), noise_variance=0.1, learner=None
    ).fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(ParameterError, match="learner=None: there is no learning"):
        plot_learning(model)


# ---- no global state


def test_figures_are_made_in_threads(model):
    def picture(_):
        file = BytesIO()
        plot_components(model, n_points=20).savefig(file, format="png", dpi=50)
        return file.getvalue()

    with ThreadPoolExecutor(4) as pool:
        pictures = set(pool.map(picture, range(8)))
    assert len(pictures) == 1
    assert pictures.pop().startswith(b"\x89PNG")


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_pyplot_is_not_imported():
    result = python("import sys, dsgp.plotting; sys.exit('matplotlib.pyplot' in sys.modules)")
    assert result.returncode == 0, result.stderr


def test_without_matplotlib_the_extra_is_named():
    result = python("import sys; sys.modules['matplotlib'] = None; import dsgp.plotting")
    assert result.returncode == 1
    assert 'ImportError: dsgp.plotting needs matplotlib: pip install ".[plot]"' in result.stderr
