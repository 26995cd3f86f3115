"""Figures of projections hold functions and directions, and say what they leave out."""

from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.stats import norm

from dsgp import AdditiveGPRegressor, ProjectionPursuitGPRegressor, variance_shares
from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Matern32
from dsgp.plotting import plot_components, plot_learning, plot_projections, plot_relevance
from dsgp.plotting.style import percent


def frame(n_columns=4, n_rows=300):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        rng.uniform(-1, 1, (n_rows, n_columns)), columns=[f"input {j}" for j in range(n_columns)]
    )
    y = X["input 0"] * X["input 1"] + 0.3 * X["input 2"] + 0.05 * rng.standard_normal(n_rows)
    return X, y


@pytest.fixture(scope="module")
def model():
    return ProjectionPursuitGPRegressor(n_projections=3, random_state=0).fit(*frame())


def pairs(figure):
    """Axes of functions, each with those of its direction."""
    return list(zip(figure.axes[::2], figure.axes[1::2], strict=True))


def curve(ax):
    (line,) = [line for line in ax.lines if line.get_label() == "mean"]
    return line.get_data()


def bars(ax):
    names = [text.get_text() for text in ax.get_yticklabels()]
    return dict(zip(names, [patch.get_width() for patch in ax.patches], strict=True))


def caption(figure):
    return " ".join(figure.get_supxlabel().replace("\N{NO-BREAK SPACE}", " ").split())


# ---- functions


def test_a_function_is_the_centred_posterior_along_its_projection(model):
    figure = plot_projections(model, n_points=60, level=0.9)
    assert isinstance(figure, Figure)
    X, _ = frame()
    components = model.components(X)
    standard = (X - X.mean()) / X.std(ddof=0)
    z = norm.ppf(0.95)
    for (ax, _), (name, weights) in zip(pairs(figure), model.projections_.iterrows(), strict=True):
        projected = standard.to_numpy() @ weights.to_numpy()
        at, mean = curve(ax)
        assert len(at) == 60
        np.testing.assert_allclose([at[0], at[-1]], [projected.min(), projected.max()], rtol=1e-6)
        expected = components.sel(term=name)
        height = np.ptp(mean)
        np.testing.assert_allclose(
            np.interp(projected, at, mean), expected["mean"], atol=0.01 * height
        )
        (area,) = [area for area in ax.collections if area.get_label() == "90% band"]
        edge = area.get_paths()[0].vertices
        top = np.array([edge[edge[:, 0] == place, 1].max() for place in at])
        reach = z * expected["std"].to_numpy()
        np.testing.assert_allclose(
            np.interp(projected, at, top - mean), reach, rtol=0.1, atol=0.01 * height
        )


def test_titles_show_the_share_and_grey_the_target_s_spread(model):
    figure = plot_projections(model, target="yield (t)")
    shares = variance_shares(model)["share"]
    for (ax, _), term in zip(pairs(figure), model.terms_, strict=True):
        title = ax.get_title(loc="left")
        assert title.startswith(f"{term.name}: ")
        assert title.endswith(f"share {percent(shares[term.name])}")
        (behind,) = [patch for patch in ax.patches if patch.get_zorder() == 0]
        std = np.sqrt(model.target_variance_)
        assert (behind.get_y(), behind.get_height()) == pytest.approx((-std, 2 * std))
    assert figure.get_supylabel() == "effect on yield (t)"
    assert "grey behind: ±1 std of the target" in caption(figure)


def test_functions_that_cancel_have_scales_of_their_own_and_are_said_to(model):
    assert len({ax.get_ylim() for ax, _ in pairs(plot_projections(model))}) == 3
    common = plot_projections(model, scale="common")
    assert len({ax.get_ylim() for ax, _ in pairs(common)}) == 1
    assert "cancel" not in caption(plot_projections(model))
    loud = ProjectionPursuitGPRegressor(n_projections=2, random_state=0).fit(*frame(n_rows=100))
    loud.target_variance_ /= 100
    figure = plot_projections(loud)
    total = sum(term.explained_variance for term in loud.terms_) / loud.target_variance_
    told = f"have {total:,.0%} of the variance of the target: they cancel in part"
    assert told in caption(figure)


# ---- directions


def test_bars_are_the_weights_by_input(model):
    for (_, ax), (_, weights) in zip(
        pairs(plot_projections(model)), model.projections_.iterrows(), strict=True
    ):
        assert bars(ax) == pytest.approx(weights.to_dict())
        assert list(bars(ax)) == list(weights.index)
        colours = [to_hex(patch.get_facecolor()) for patch in ax.patches]
        assert len(set(colours)) == len(set(np.sign(weights)))
        bottom, top = ax.get_ylim()
        assert bottom > top  # the first input is the uppermost


def test_of_many_inputs_the_largest_are_shown_and_the_rest_is_one_bar():
    X, y = frame(30)
    model = ProjectionPursuitGPRegressor(n_projections=1, random_state=0).fit(X, y)
    figure = plot_projections(model, max_inputs=3)
    ((_, ax),) = pairs(figure)
    weights = model.projections_.iloc[0]
    shown = weights[weights.abs().sort_values(ascending=False).index[:3]]
    *names, others = bars(ax)
    assert names == sorted(shown.index, key=list(X).index)
    assert others == "27 others"
    assert bars(ax)[others] == pytest.approx(np.linalg.norm(weights.drop(names)))
    assert "grey bar: root of the sum of squares" in caption(figure)


def test_long_names_are_shortened_and_never_read_as_mathematics():
    X, y = frame()
    X.columns = [f"mean_temperature_of_$sea_surface${j}_at_10_metres_{j}" for j in range(4)]
    model = ProjectionPursuitGPRegressor(n_projections=2, random_state=0).fit(X, y)
    figure = plot_projections(model)
    figure.savefig(BytesIO(), format="png")
    for _, ax in pairs(figure):
        for text, name in zip(ax.get_yticklabels(), X, strict=True):
            assert len(text.get_text()) <= 17
            assert text.get_text()[-5:] == name[-5:]


# ---- how many


def test_the_first_projections_are_drawn_and_the_others_counted(model):
    figure = plot_projections(model, max_terms=1)
    assert len(figure.axes) == 2
    rest = percent(variance_shares(model)["share"].iloc[1:].sum())
    told = f"not shown: 2 further projections, of shares {rest} in all"
    assert told in caption(figure)
    assert "not shown" not in caption(plot_projections(model))


@pytest.mark.parametrize(("n_projections", "columns"), [(1, 2), (6, 4)])
def test_more_than_a_few_projections_go_into_two_columns(n_projections, columns):
    # "greedy" gives as many as are asked for
    model = ProjectionPursuitGPRegressor(
        n_projections=n_projections, method="greedy", random_state=0
    ).fit(*frame(n_rows=100))
    figure = plot_projections(model)
    assert len(figure.axes) == 2 * n_projections
    assert figure.axes[0].get_gridspec().ncols == columns
    assert [ax.get_xlabel() for ax in figure.axes[-2:]] == ["projection", "weight"]


def test_arrays_have_numbered_inputs():
    X, y = frame()
    model = ProjectionPursuitGPRegressor(n_projections=1, random_state=0).fit(X.to_numpy(), y)
    ((_, ax),) = pairs(plot_projections(model))
    assert list(bars(ax)) == ["x0", "x1", "x2", "x3"]


def test_bad_options_and_other_models_are_refused(model):
    for options in ({"max_terms": 0}, {"max_inputs": 0}, {"n_points": 1}):
        with pytest.raises(ParameterError, match="must be at least"):
            plot_projections(model, **options)
    with pytest.raises(ParameterError, match="level must be a share"):
        plot_projections(model, level=95)
    with pytest.raises(ParameterError, match="max_inputs must be at least 1"):
        plot_relevance(model, max_inputs=0)
    additive = AdditiveGPRegressor(
        Matern32(lengthscale=1.0, variance=1.0), noise_variance=0.1, learner=None
    ).fit([[0.0], [1.0]], [0.0, 1.0])
    for plot in (plot_projections, plot_relevance):
        with pytest.raises(ParameterError, match="has no projections: plot_components"):
            plot(additive)


@pytest.mark.filterwarnings("ignore::dsgp.errors.DataWarning")
def test_without_a_projection_there_is_nothing_to_draw():
    X, _ = frame()
    model = ProjectionPursuitGPRegressor(random_state=0).fit(X, np.ones(len(X)))
    with pytest.raises(ParameterError, match="no projection to draw"):
        plot_projections(model)


# ---- relevance


def test_relevance_is_sorted_and_adds_up(model):
    figure = plot_relevance(model)
    (ax,) = figure.axes
    relevance = model.relevance_.sort_values(ascending=False)
    assert bars(ax) == pytest.approx(relevance.to_dict())
    assert list(bars(ax)) == list(relevance.index)
    (ax,) = plot_relevance(model, max_inputs=2).axes
    assert list(bars(ax)) == [*relevance.index[:2], "2 others"]
    assert sum(bars(ax).values()) == pytest.approx(1.0)


def test_relevance_goes_into_a_given_figure(model):
    whole = Figure((10, 4), layout="constrained")
    left, right = whole.subfigures(1, 2)
    assert plot_relevance(model, fig=right) is whole
    assert (len(left.axes), len(right.axes)) == (0, 1)


# ---- the search, and components


@pytest.mark.parametrize("method", ["refit", "greedy"])
def test_the_search_is_drawn_against_the_number_of_projections(method):
    model = ProjectionPursuitGPRegressor(method=method, random_state=0).fit(*frame(n_rows=150))
    figure = plot_learning(model)
    evidence, gap = figure.axes
    terms, value = np.array(model.evidence_trace_).T
    np.testing.assert_array_equal(evidence.lines[0].get_data(), [terms, value])
    short = value.max() - value
    np.testing.assert_array_equal(gap.lines[0].get_ydata(), short[short > 0])
    assert gap.get_title() == f"model: {model.n_projections_} projections"
    assert ("Rows held out decide" in caption(figure)) == (method == "greedy")


def test_components_of_a_pursuit_model_are_its_functions(model):
    X, _ = frame()
    for given in (None, X):
        figure = plot_components(model, given, sort="column", n_points=60)
        labels = [ax.get_title() for ax in figure.axes]
        assert labels == ["projection 1", "projection 2", "projection 3"]
        for ax, (function, _) in zip(figure.axes, pairs(plot_projections(model)), strict=True):
            np.testing.assert_allclose(curve(ax)[0][[0, -1]], curve(function)[0][[0, -1]])
    half = plot_components(model, X[X["input 0"] > 0], terms=["projection 1"])
    at, _ = curve(half.axes[0])
    standard = (X - X.mean()) / X.std(ddof=0)
    projected = standard.to_numpy() @ model.projections_.loc["projection 1"].to_numpy()
    assert at[0] == pytest.approx(projected[X["input 0"] > 0].min(), rel=1e-6)
    with pytest.raises(DataError, match="input 3"):
        plot_components(model, X.drop(columns="input 3"))
