"""``projections=`` of an additive model: functions of mixtures of columns beside its terms."""

import numpy as np
import pandas as pd
import pytest

import dsgp
from dsgp import AdditiveGPRegressor
from dsgp.errors import DataError, ParameterError


def truth(table):
    twice = np.sin(1.2 * (table["b"] + table["c"] - table["d"]))
    return np.sin(2 * table["a"]) + twice + (table["group"] == "p") * table["a"] / 2


def table_of(n, seed=0):
    random = np.random.default_rng(seed)
    table = pd.DataFrame(random.uniform(-2, 2, (n, 4)), columns=list("abcd"))
    table["group"] = random.choice(["p", "q"], n)
    table["y"] = truth(table) + 0.1 * random.standard_normal(n)
    return table


@pytest.fixture(scope="module")
def fitted():
    table = table_of(600)
    model = AdditiveGPRegressor(projections=1, interactions=[("a", "group")])
    return table, model.fit(table.drop(columns="y"), table["y"])


def test_the_mixture_is_found_beside_curves_and_pairs(fitted):
    _, model = fitted
    new = table_of(400, seed=1)
    mean, std = model.predict(new, return_std=True)
    error = mean - truth(new)
    assert np.var(error) < 0.005 * np.var(truth(new))
    assert 0.85 < np.mean(np.abs(error) < 1.96 * std) <= 1.0
    direction = model.projections_.loc["projection 1"]
    np.testing.assert_allclose(np.abs(direction[["b", "c", "d"]]), 0.58, atol=0.05)
    assert abs(direction["a"]) < 0.05
    names = [term.name for term in model.terms_]
    assert names[0] == "projection 1"
    assert set(names[1:]) == {"a", "b", "c", "d", "group", "a × group"}


def test_parts_add_up_and_a_stored_model_is_the_same(fitted, tmp_path):
    _, model = fitted
    new = table_of(40, seed=2)
    parts = model.components(new)
    total = parts["mean"].sum("term") + parts["intercept"]
    np.testing.assert_allclose(total, model.predict(new), rtol=1e-12, atol=1e-12)
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    pd.testing.assert_frame_equal(loaded.projections_, model.projections_)
    assert loaded.summary() == model.summary()


def test_a_remainder_goes_with_projections():
    table, new = table_of(500), table_of(200, seed=1)
    model = AdditiveGPRegressor(projections=1, remainder=True)
    model.fit(table.drop(columns="y"), table["y"])
    error = model.predict(new) - truth(new)
    assert np.var(error) < 0.01 * np.var(truth(new))
    assert model.components(new)["term"].values[-1] == "remainder"


def test_without_projections_there_is_no_table_of_them():
    table = table_of(60)
    model = AdditiveGPRegressor().fit(table[["a", "b"]], table["y"])
    assert model.n_projections_ == 0
    assert not hasattr(model, "projections_")
    assert not hasattr(model, "evidence_")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"projections": -1}, 'must be "auto" or a number'),
        ({"projections": "many"}, 'must be "auto" or a number'),
        ({"projections": True}, 'must be "auto" or a number'),
        ({"projections": 1, "learner": "vbem"}, "by the marginal likelihood"),
        ({"projections": 1, "method": "gibbs"}, "by the marginal likelihood"),
        ({"projections": 1, "missing": "ignore"}, "needs all its columns"),
    ],
)
def test_what_does_not_go_together_is_refused(options, match):
    table = table_of(60)
    with pytest.raises(ParameterError, match=match):
        AdditiveGPRegressor(**options).fit(table.drop(columns="y"), table["y"])


def test_levels_alone_cannot_be_projected():
    table = table_of(60)
    with pytest.raises(DataError, match="mixes columns of numbers"):
        AdditiveGPRegressor(projections=1).fit(table[["group"]], table["y"])
