"""Figures of classes hold the curves of their definition, and stay readable for many classes."""

from io import BytesIO

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from sklearn.metrics import confusion_matrix, roc_curve

from dsgp.errors import DataError, ParameterError
from dsgp.metrics import brier, calibration_curve, calibration_error, mnll, roc_auc
from dsgp.plotting import plot_calibration, plot_classification, plot_roc
from dsgp.plotting.style import ACCENT, INK


@pytest.fixture(scope="module")
def binary():
    rng = np.random.default_rng(0)
    p = rng.beta(0.6, 0.8, 800)
    names = np.array(["benign", "malignant"])
    return names[(rng.uniform(size=800) < p).astype(int)], p, names


def several(n_classes, concentration=0.2, n_rows=1500):
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(n_classes, concentration), n_rows)
    names = np.array([f"class {k:02d}" for k in range(n_classes)])
    return names[[rng.choice(n_classes, p=row) for row in p]], p, names


def line(ax, name):
    (found,) = [line for line in ax.lines if line.get_label() == name]
    return found.get_data()


def dots(ax, name):
    """Points of the error bars with a label, and their ends."""
    (bars,) = [bars for bars in ax.containers if bars.get_label() == name]
    points, _, (whiskers,) = bars
    return points, np.array(whiskers.get_segments())[:, :, 1]


def legend_texts(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


# ---- two classes


def test_dots_are_the_bins_with_their_intervals_and_red_ones_miss(binary):
    y, p, names = binary
    p = p**0.8  # too sure of the second class
    figure = plot_calibration(y, p, classes=names, n_bins=8, level=0.9)
    assert isinstance(figure, Figure)
    ax = figure.axes[0]
    curve = calibration_curve(y, p, names, n_bins=8, level=0.9)
    missed = (curve.predicted < curve.low) | (curve.predicted > curve.high)
    assert missed.any()
    assert not missed.all()
    for bins, name, colour in ((~missed, "held", INK), (missed, "missed", ACCENT)):
        points, ends = dots(ax, name)
        np.testing.assert_array_equal(
            points.get_data(), [curve.predicted[bins], curve.observed[bins]]
        )
        np.testing.assert_allclose(ends, np.column_stack([curve.low, curve.high])[bins])
        assert to_hex(points.get_color()) == colour
    title = ax.get_title()
    assert f"log loss {mnll(y, p, names):.3g}" in title
    assert f"Brier score {brier(y, p, names):.3g}" in title
    assert f"calibration error {calibration_error(y, p, names, n_bins=8):.2g}" in title


def test_rows_below_the_calibration_are_counted_by_class(binary):
    y, p, names = binary
    figure = plot_calibration(y, p, classes=names)
    rows = figure.axes[1]
    assert rows.get_xlabel() == "predicted probability of class malignant"
    for bars, name, sign in zip(rows.containers, names[::-1], (1, -1), strict=True):
        heights = np.array([bar.get_height() for bar in bars])
        expected, _ = np.histogram(p[y == name], np.linspace(0, 1, len(heights) + 1))
        np.testing.assert_array_equal(sign * heights, expected)
    assert f"class malignant: {np.count_nonzero(y == 'malignant'):,} rows" in legend_texts(figure)


def test_the_roc_is_scikit_learn_s_with_a_mark_at_one_half(binary):
    y, p, names = binary
    (ax,) = plot_roc(y, p, classes=names).axes
    false, true, _ = roc_curve(y == "malignant", p)
    np.testing.assert_array_equal(line(ax, "malignant"), [false, true])
    x, height = line(ax, "half")
    assert x == pytest.approx(np.mean(p[y == "benign"] > 0.5))
    assert height == pytest.approx(np.mean(p[y == "malignant"] > 0.5))
    wrong = np.mean((p > 0.5) != (y == "malignant"))
    assert ax.get_title() == (
        f"area under the curve {roc_auc(y, p, names):.4g},\n"
        f"{wrong:.2%} of 800 rows wrong at probability ½"
    )


def test_curves_that_hug_the_corner_are_enlarged(binary):
    y, p, names = binary
    sharp = 1 / (1 + np.exp(-20 * (p - 0.5)))
    y = names[(np.random.default_rng(2).uniform(size=800) < sharp).astype(int)]
    (ax,) = plot_roc(y, sharp, classes=names).axes
    (corner,) = ax.child_axes
    assert corner.get_xlim()[1] <= 0.2
    np.testing.assert_array_equal(line(corner, "malignant"), line(ax, "malignant"))
    assert not [each for each in ax.lines if each.get_label() == "guess"]


def test_one_figure_holds_both(binary):
    y, p, names = binary
    figure = plot_classification(y, np.column_stack([1 - p, p]), classes=names)
    curve, roc, rows = figure.axes
    assert (curve.get_ylabel(), rows.get_ylabel(), roc.get_ylabel()) == (
        "observed share", "rows", "true positive rate"
    )  # fmt: skip
    assert curve.get_xlim() == rows.get_xlim()
    figure.savefig(BytesIO())


def test_certain_and_wrong_has_no_finite_likelihood_and_is_drawn():
    figure = plot_classification([0, 1, 1, 0], [0.0, 1.0, 0.0, 0.5])
    assert "log loss ∞" in figure.axes[0].get_title()
    figure.savefig(BytesIO())


# ---- more classes


def test_each_class_has_a_curve_against_the_rest_in_its_colour():
    y, p, names = several(4)
    figure = plot_classification(y, p, classes=names)
    calibration, roc, confusion = figure.axes
    colours = set()
    for k, name in enumerate(names):
        false, true, _ = roc_curve(y == name, p[:, k])
        np.testing.assert_array_equal(line(roc, name), [false, true])
        (curve,) = [each for each in calibration.lines if each.get_label() == name]
        likely = p[:, k] >= 0.02
        expected = calibration_curve(y[likely] == name, p[likely, k], n_bins=15)
        np.testing.assert_array_equal(curve.get_data(), [expected.predicted, expected.observed])
        (of_roc,) = [each for each in roc.lines if each.get_label() == name]
        assert curve.get_color() == of_roc.get_color()
        colours.add(curve.get_color())
        assert f"{name}: area {roc_auc(y == name, p[:, k]):.4f}" in legend_texts(figure)
    assert len(colours) == 4
    told = names[p.argmax(axis=1)]
    points = [points for bars in calibration.containers for points in bars[0].get_xydata()]
    top = calibration_curve(y == told, p.max(axis=1), n_bins=20)
    np.testing.assert_allclose(sorted(map(tuple, points)), np.c_[top.predicted, top.observed])

    counts = np.zeros((4, 4), dtype=int)
    for text in confusion.texts:
        column, row = text.get_position()
        counts[row, column] = int(text.get_text().replace(",", ""))
    np.testing.assert_array_equal(counts, confusion_matrix(y, told, labels=names))
    assert [text.get_text() for text in confusion.get_yticklabels()] == list(names)
    assert confusion.get_title() == f"{np.count_nonzero(y != told):,} of 1,500 rows wrong"


def test_right_ones_are_blue_and_wrong_ones_red():
    y, p, names = several(5)
    (image,) = plot_classification(y, p, classes=names).axes[2].images
    red, _, blue = np.moveaxis(image.get_array()[:, :, :3], 2, 0)
    right = np.eye(5, dtype=bool)
    assert (blue[right] > red[right]).all()
    assert (red[~right] >= blue[~right]).all()


@pytest.mark.parametrize("draw", [plot_classification, plot_calibration, plot_roc])
@pytest.mark.parametrize("n_classes", [3, 10, 26])
def test_the_legend_lies_inside_the_figure_and_below_the_panels(draw, n_classes):
    y, p, names = several(n_classes)
    names = np.array([f"a rather long name {name}" for name in names])
    y = names[[int(label[-2:]) for label in y]]
    figure = draw(y, p, classes=names)
    figure.savefig(BytesIO(), dpi=100)
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert box.y0 >= 0
    for ax in figure.axes:
        panel = ax.get_tightbbox()
        assert panel.y0 >= box.y1 - 1
        assert panel.y1 <= figure.bbox.height


def test_of_many_classes_the_ten_worst_ranked_are_in_colour():
    y, p, names = several(26)
    figure = plot_roc(y, p, classes=names)
    areas = [roc_auc(y == name, p[:, k]) for k, name in enumerate(names)]
    worst = set(names[np.argsort(areas)[:10]])
    texts = legend_texts(figure)
    assert {text.split(":")[0] for text in texts[:-1]} == worst
    assert texts[-1] == "16 larger areas"
    assert len({each.get_color() for each in figure.axes[0].lines}) <= 12  # grey, and the guess


def test_a_class_that_did_not_come_has_no_curve():
    y, p, names = several(4)
    seen = y != "class 03"
    p = p[seen, :] + 1e-3
    figure = plot_classification(y[seen], p / p.sum(axis=1, keepdims=True), classes=names)
    assert not [each for each in figure.axes[1].lines if each.get_label() == "class 03"]
    figure.savefig(BytesIO())


# ---- axes of the caller, and errors


@pytest.mark.parametrize("draw", [plot_calibration, plot_roc])
def test_a_panel_is_drawn_into_given_axes(draw, binary):
    y, p, names = binary
    figure = Figure()
    ax, other = figure.subplots(1, 2)
    assert draw(y, p, classes=names, ax=ax) is figure
    assert ax.has_data()
    assert not other.has_data()
    y, p, names = several(3)
    draw(y, p, classes=names, ax=other)
    assert len(other.get_legend().get_texts()) == 3


def test_names_are_no_mathematics():
    names = ["$\\broken", "cost $"]
    figure = plot_classification(np.array(names)[[0, 1, 1]], [0.2, 0.7, 0.6], classes=names)
    figure.savefig(BytesIO())


@pytest.mark.parametrize("draw", [plot_classification, plot_calibration, plot_roc])
@pytest.mark.parametrize(
    ("y", "p", "message"),
    [
        ([0, 1], [0.5, 1.5], "probability: expected values between 0 and 1"),
        (["a", "b"], [0.5, 0.5], "give the labels of the columns as classes"),
        ([1, 1], [0.5, 0.6], "every label is 1"),
        ([0, 1], [0.5], "probability: expected the shape"),
    ],
)
def test_what_cannot_be_drawn_is_named(draw, y, p, message):
    with pytest.raises(DataError, match=message):
        draw(y, p)


def test_a_level_is_a_share():
    with pytest.raises(ParameterError, match="level must be a share"):
        plot_calibration([0, 1], [0.4, 0.6], level=95)
