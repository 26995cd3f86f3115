"""``pipelines.grid image``: images, what is done to them, and the folder of results."""

import json

import numpy as np
import pytest
from matplotlib.image import imsave
from typer.testing import CliRunner

from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Matern32
from pipelines.grid import imaging, pictures
from pipelines.grid.__main__ import app
from pipelines.grid.figures import draw_image
from pipelines.grid.tables import PAPER, image_report, metrics_of_image

FILES = {
    "image-as-it-is.png", "image-noise-added.png", "metrics.json", "report.json", "report.md",
}  # fmt: skip


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def waves(size):
    """A smooth picture with one edge."""
    row, column = np.mgrid[:size, :size] / size
    return 128 + 60 * np.sin(5 * row) * np.cos(7 * column) + 40 * (row > column)


@pytest.fixture(scope="module")
def tasks():
    picture = pictures.Picture("waves", "waves", waves(40))
    return imaging.tasks_of(picture, 20.0, Matern32, 0)


# ---- images


def test_a_sample_image_of_scikit_learn_is_cut_to_size():
    picture = pictures.picture_of("china", 50)
    assert picture.values.shape == (50, 50)
    assert 0 <= picture.values.min() < picture.values.max() <= 255
    assert "rows 60–109" in picture.source


def test_the_camera_is_a_part_of_that_of_scikit_image():
    skimage_data = pytest.importorskip("skimage.data")
    picture = pictures.picture_of("camera", 200)
    np.testing.assert_array_equal(picture.values, skimage_data.camera()[60:260, 140:340])


def test_a_file_is_cut_in_its_middle(tmp_path):
    levels = np.arange(30 * 20, dtype=np.uint8).reshape(30, 20)
    imsave(tmp_path / "own.png", np.stack([levels] * 3, axis=2))
    picture = pictures.picture_of(str(tmp_path / "own.png"), 16)
    assert picture.name == "own"
    np.testing.assert_allclose(picture.values, levels[7:23, 2:18], atol=1e-4)


def test_images_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"camera, .*or a file; got 'nothing'"):
        pictures.picture_of("nothing", 50)
    with pytest.raises(DataError, match="fewer than --size 500"):
        pictures.picture_of("china", 500)
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(DataError, match="not an image that can be read"):
        pictures.picture_of(str(tmp_path / "text.png"), 50)


def test_without_scikit_image_there_are_images_but_no_ssim(monkeypatch):
    monkeypatch.setattr(pictures, "HAS_SKIMAGE", False)
    assert pictures.default_image() == "china"
    assert pictures.ssim(waves(20), waves(20)) is None
    assert pictures.non_local_means(waves(20), 5.0) is None
    with pytest.raises(ParameterError, match="pip install scikit-image"):
        pictures.picture_of("camera", 50)


# ---- scores and baselines


def test_psnr_and_ssim_are_those_of_scikit_image():
    clean, noisy = waves(40), pictures.with_noise(waves(40), 10.0, seed=1)
    # An error of 25.5 everywhere is a tenth of the peak.
    assert pictures.psnr(clean, clean + 25.5) == pytest.approx(20.0)
    assert pictures.psnr(clean, clean) == np.inf
    metrics = pytest.importorskip("skimage.metrics")
    expected = metrics.peak_signal_noise_ratio(clean, noisy, data_range=255)
    assert pictures.psnr(clean, noisy) == pytest.approx(expected)
    assert pictures.ssim(clean, clean) == pytest.approx(1.0)


def test_noise_is_seeded_and_of_the_size_asked_for():
    flat = np.full((200, 200), 100.0)
    noisy = pictures.with_noise(flat, 25.0, seed=3)
    np.testing.assert_array_equal(noisy, pictures.with_noise(flat, 25.0, seed=3))
    assert noisy.std() == pytest.approx(25.0, rel=0.02)


@pytest.mark.parametrize("order", [1, 3])
def test_splines_keep_the_pixels_given_and_are_exact_on_a_plane(order):
    row, column = np.mgrid[:21, :21]
    plane = 2.0 * row - column
    found = pictures.spline(pictures.halved(plane), plane.shape, order)
    np.testing.assert_allclose(found[::2, ::2], plane[::2, ::2], atol=1e-9)
    inner = slice(8, -8) if order == 3 else slice(None)  # its ends are mirrored
    np.testing.assert_allclose(found[inner, inner], plane[inner, inner], atol=0.05)


def test_three_quarters_of_the_pixels_are_left_out():
    assert pictures.left_out((40, 40)).mean() == 0.75
    assert not pictures.left_out((41, 41))[::2, ::2].any()


# ---- reconstruction


def test_ours_is_better_than_the_noise_and_than_splines_of_it(tasks):
    scores = {(t.case, t.kind): {m.method: m.scores for m in t.methods} for t in tasks}
    denoised = scores[imaging.NOISY, "denoise"]
    assert denoised["GridGP"]["psnr"] > denoised["nothing: the noisy image"]["psnr"] + 4
    interpolated = scores[imaging.NOISY, "interpolate"]
    assert interpolated["GridGP"]["psnr"] > interpolated["bilinear"]["psnr"] + 1
    assert 0.85 < interpolated["GridGP"]["coverage"] <= 1


def test_the_noise_that_was_added_is_learnt(tasks):
    assert tasks[2].ours.fitted["noise_std"] == pytest.approx(20.0, rel=0.1)


def test_the_std_is_that_of_all_pixels_and_largest_beyond_those_given(tasks):
    std = tasks[1].ours.std
    assert std.shape == (40, 40)
    assert std[39, 8:-8].min() > std[8:-8, 8:-8].max()  # row 38 is the last that is given


def test_the_same_seed_makes_the_same_reconstructions(tasks):
    picture = pictures.Picture("waves", "waves", waves(40))
    again = imaging.tasks_of(picture, 20.0, Matern32, 0)
    for one, two in zip(tasks, again, strict=True):
        np.testing.assert_array_equal(one.ours.mean, two.ours.mean)
        np.testing.assert_array_equal(one.ours.std, two.ours.std)


def test_of_the_image_as_it_is_nothing_cleaner_is_known(tasks):
    assert tasks[0].truth is None
    assert tasks[0].ours.scores == {}
    assert set(tasks[0].ours.seconds) == {"learn", "reconstruct"}


def test_the_report_sets_our_seconds_beside_the_papers(tasks):
    page = image_report("waves", 20.0, tasks, ["a note"])
    for seconds in PAPER.values():
        for number in seconds.values():
            assert str(number) in page
    assert page.count("| GridGP |") == 4
    assert "* a note" in page
    assert metrics_of_image(tasks)[imaging.NOISY]["denoise"]["GridGP"]["seconds"]["learn"] > 0


def test_the_picture_has_the_papers_four_panels(tasks):
    titles = [ax.get_title() for ax in draw_image(*tasks[2:]).axes]
    for panel in ("(a) noisy image", "(b) GridGP of (a)", "(c) every 2nd", "(d) GridGP of (c)"):
        assert any(title.startswith(panel) for title in titles)


# ---- the command


def test_the_command_writes_everything(tmp_path):
    out = tmp_path / "out"
    done = invoke("image", "--image", "china", "--size", 32, "--out", out)
    assert done.exit_code == 0, done.output
    assert {entry.name for entry in out.iterdir()} == FILES
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics[imaging.NOISY]["denoise"]["GridGP"]["scores"]["psnr"] > 20
    report = json.loads((out / "report.json").read_text())
    assert report["pipeline"] == "grid image"
    assert report["data"]["pixels"] == [32, 32]
    assert report["options"]["noise"] == 25.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", 8], "--size must be at least 16"),
        (["--noise", 0], "--noise positive"),
        (["--kernel", "cubic"], "kernel must be one of matern12"),
        (["--image", "nothing"], "or a file; got 'nothing'"),
    ],
)
def test_bad_options_are_reported_in_a_line(tmp_path, options, message):
    done = invoke("image", "--out", tmp_path / "out", *options)
    assert done.exit_code == 1
    assert message in done.output
    assert not (tmp_path / "out").exists()


def test_the_help_has_examples():
    assert "python -m pipelines.grid image --image china" in invoke("image", "--help").output
