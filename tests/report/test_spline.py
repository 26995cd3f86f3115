"""Pages about smoothing splines: the function is what the model predicts, beside the rows."""

import json
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest

from dsgp import SmoothingSpline
from dsgp.cli import main
from dsgp.errors import DataError, ParameterError

pytest.importorskip("vl_convert")
report = pytest.importorskip("dsgp.report")


def _words(page):
    text = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def _charts(page):
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.S)[1])
    return [spec for spec in specs.values() if " along " in spec["description"]]


def _rows(n=400, seed=2):
    random = np.random.default_rng(seed)
    x = random.uniform(0, 10, n)
    return pd.DataFrame({"dose": x}), 280 + np.sin(x) + 0.3 * random.standard_normal(n)


def test_the_function_and_its_slope_are_those_that_the_model_predicts():
    X, y = _rows()
    model = SmoothingSpline().fit(X, y)
    page = report.report_page(model, target="heat, K")
    words = _words(page)
    assert f"degrees of freedom {model.effective_dof_:.1f}" in words
    assert f"noise, standard deviation {np.sqrt(model.noise_variance_):.3g}" in words
    assert "learned by restricted maximum likelihood" in words
    assert "made without held-out rows" in words
    assert "model.fit(table[['dose']], y)" in words
    assert "continues as a straight line" in words
    function, slope = _charts(page)
    bars, curve = function["layer"]
    assert sum(row["n"] for row in bars["data"]["values"]) == 400
    for chart, derivative in ((curve, 0), (slope["layer"][0], 1)):
        rows = pd.DataFrame(chart["data"]["values"])
        mean, std = model.predict(
            rows[["x"]].set_axis(["dose"], axis=1), return_std=True, derivative=derivative
        )
        reach = np.ptp(mean)
        np.testing.assert_allclose(rows["m"], mean, rtol=0, atol=1e-3 * reach)
        np.testing.assert_allclose(rows["l"], mean - 1.96 * std, rtol=0, atol=2e-3 * reach)
        np.testing.assert_allclose(rows["h"], mean + 1.96 * std, rtol=0, atol=2e-3 * reach)
    points = pd.DataFrame(curve["layer"][1]["data"]["values"])
    order = np.argsort(X["dose"].to_numpy())
    np.testing.assert_allclose(points["x"], X["dose"].to_numpy()[order], atol=1e-3)
    np.testing.assert_allclose(points["m"], y[order], atol=1e-3)
    assert curve["layer"][0]["encoding"]["y"]["scale"] == {"zero": False}


def test_accuracy_is_on_held_out_rows_and_calibrated_or_not_by_its_own_intervals():
    X, y = _rows()
    model = SmoothingSpline().fit(X[:300], y[:300])
    new = X[300:].assign(heat=y[300:], other="text")
    words = _words(report.report_page(model, new, "heat"))
    mean, std = model.predict(X[300:], return_std=True, include_noise=True)
    assert "Accuracy on 100 held-out rows" in words
    assert f"RMSE {np.sqrt(np.mean((y[300:] - mean) ** 2)):.3g}" in words
    assert f"{np.mean(np.abs(y[300:] - mean) < 1.959964 * std):.1%}" in words
    for rows in (X["dose"][300:], X["dose"][300:].to_numpy(), list(X["dose"][300:])):
        assert "Accuracy on 100 held-out rows" in _words(report.report_page(model, rows, y[300:]))
    with pytest.raises(ParameterError, match="exposure is of models of counts"):
        report.report_page(model, X, y, extra={"exposure": y})
    with pytest.raises(DataError, match="no column 'z'"):
        report.report_page(model, X, "z")


def test_dates_arrays_other_orders_ties_and_rows_without_noise():
    random = np.random.default_rng(1)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 300, 500), "D")
    y = np.sin(np.asarray(days.day_of_year) / 30) + 0.1 * random.standard_normal(500)
    model = SmoothingSpline().fit(pd.DataFrame({"day": days}), y)
    page = report.report_page(model, pd.DataFrame({"day": days}), y)
    assert re.search(
        r"day date 2020-01-0\d to 2020-10-2\d; \d+ points 0 the function", _words(page)
    )
    assert "mean targets of equal inputs" in _words(page)
    assert "change of the target per day" in _words(page)
    assert _charts(page)[0]["layer"][1]["layer"][0]["encoding"]["x"]["type"] == "temporal"

    zoned = pd.DataFrame({"day": days.tz_localize("Europe/Rome")})
    zoned_page = report.report_page(SmoothingSpline().fit(zoned, y), zoned, y)
    assert _charts(zoned_page) == _charts(page)

    X, y = _rows(60)
    broken = report.report_page(SmoothingSpline(order=1).fit(X["dose"].to_numpy(), y))
    assert len(_charts(broken)) == 1  # no slope
    assert "continues as a constant" in _words(broken)
    with pytest.warns(match="no noise"):
        exact = SmoothingSpline().fit(X, 2 * X["dose"])
    assert "Warning: The rows show no noise" in _words(report.report_page(exact))


def test_the_command_reports_and_a_notebook_shows_the_summary(tmp_path, capsys):
    X, y = _rows(120)
    model = SmoothingSpline(smoothing=0.5).fit(X, y)
    assert "<pre>SmoothingSpline of dose" in model._repr_mimebundle_()["text/html"]
    assert "SmoothingSpline of dose" not in SmoothingSpline()._repr_mimebundle_()["text/html"]
    model.save(tmp_path / "m.zarr")
    X.assign(heat=y).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "page.html"
    with pytest.raises(SystemExit) as end:
        main(
            [
                *("report", str(tmp_path / "m.zarr"), "-o", str(out)),
                *("--data", str(tmp_path / "new.csv"), "--target", "heat"),
            ]
        )
    assert end.value.code == 0
    words = _words(out.read_text(encoding="utf-8"))
    assert "Accuracy on 120 held-out rows" in words
    assert "given, not learned" in words
