"""A regression of a skewed target by the pipelines: measured by its own density."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pydantic")

from dsgp import AdditiveGPRegressor
from dsgp.plotting import plot_components
from pipelines.datasets import Split
from pipelines.run.sections import Model
from pipelines.run.single import run_one


def test_measures_are_those_of_the_target(tmp_path):
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"x": rng.uniform(0, 2, 240)})
    y = np.exp(np.sin(2 * x["x"].to_numpy()) + 0.5 * rng.standard_normal(240))
    split = Split("skewed", x[:160], y[:160], x[160:], y[160:], None, None, "price")
    model = AdditiveGPRegressor(target_transform="log")
    report = run_one(split, model, tmp_path / "out")
    density = -float(np.mean(model.log_predictive_density(x[160:], y[160:])))
    assert report["metrics"]["mnlp"] == pytest.approx(density)
    lower, upper = model.predict_interval(x[160:], include_noise=True)
    inside = (lower <= y[160:]) & (y[160:] <= upper)
    assert report["metrics"]["coverage"] == pytest.approx(inside.mean())
    rows = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    np.testing.assert_allclose(rows["lower"], lower)
    assert "transform log" in plot_components(model).get_supylabel()


def test_what_a_transform_does_not_go_with_is_refused_before_any_stage():
    fitted = {"target_transform": "log"}
    assert Model.model_validate({"additive": fitted}).additive.target_transform == "log"
    with pytest.raises(ValueError, match="do not add up"):
        Model.model_validate({"additive": fitted, "pursuit": {"fit_to": "residual"}})
    with pytest.raises(ValueError, match="scoring has a link"):
        Model.model_validate({"additive": fitted, "scoring": {}})
    with pytest.raises(ValueError, match="target_transform"):
        Model.model_validate({"additive": {"target_transform": "sqrt"}})
