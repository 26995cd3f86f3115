"""Updates with rows that say little of themselves: few, all missing, far away, unlike others."""

import warnings

import numpy as np
import pandas as pd
import pytest

from dsgp import AdditiveGPRegressor, Smooth, Tensor
from dsgp.errors import DataError, DataWarning, ParameterError


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.uniform(0, 90, n), "D"),
            "x": rng.uniform(-3, 3, n),
            "town": rng.choice(list("BCD"), n),
            "open": rng.random(n) > 0.5,
        }
    )
    return frame, np.sin(frame.x.to_numpy()) + 0.3 * rng.standard_normal(n)


def numbers(n, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + 0.2 * X[:, 1] ** 2 + 0.3 * rng.standard_normal(n)


@pytest.mark.parametrize("bins", [None, 20])
def test_a_column_that_is_missing_in_all_new_rows_adds_nothing_to_its_term(bins, tmp_path):
    frame, y = table(120)
    nothing = [None] * 5
    new = frame[:5].assign(day=nothing, x=nothing, town=nothing, open=nothing)
    made = []
    for kind in ("frame", "text", "csv"):
        model = AdditiveGPRegressor(bins=bins, missing="ignore", tol=1e-8).fit(frame, y)
        terms = {term.name: term.weight for term in model.terms_}
        if kind == "text":
            new["town"] = new["town"].astype("string")
        if kind == "csv":
            new.assign(y=y[:5]).to_csv(tmp_path / "new.csv", index=False)
            model.update(str(tmp_path / "new.csv"), "y")
        else:
            model.update(new, y[:5])
        assert model.n_rows_ == 125
        assert model.n_missing_ == dict.fromkeys(["day", "x", "town", "open"], 5)
        for term in model.terms_:
            np.testing.assert_allclose(term.weight, terms[term.name], rtol=1e-9)
        made.append(model.predict(frame))
    np.testing.assert_allclose(made[1:], [made[0]] * 2, rtol=1e-9)


def test_inputs_of_an_interaction_that_are_never_there_together():
    frame, y = table(200)
    terms = [Smooth("x"), Tensor("x", "day")]
    model = AdditiveGPRegressor(terms=terms, bins=20, missing="ignore").fit(frame, y)
    new = frame[:4].copy()
    new.loc[new.index[:2], "x"] = np.nan
    new.loc[new.index[2:], "day"] = pd.NaT
    before = model.terms_[1].weight.sum()
    model.update(new, y[:4])
    assert model.terms_[1].weight.sum() == pytest.approx(before, rel=1e-9)


def test_levels_of_few_rows_are_levels_whatever_they_look_like():
    rng = np.random.default_rng(0)
    sizes = pd.DataFrame({"size": rng.choice(["S", "M", "1.5"], 60)})
    y = rng.standard_normal(60)
    model = AdditiveGPRegressor(bins=None).fit(sizes, y)
    model.update(pd.DataFrame({"size": ["1.5", "1.5"]}), [3.0, 3.0])
    assert model.n_rows_ == 62
    with pytest.raises(DataError, match=r"'size' held levels.*holds numbers"):
        model.update(pd.DataFrame({"size": [1.5, 1.5]}), [3.0, 3.0])


@pytest.mark.parametrize("bins", [None, 20])
def test_rows_that_cannot_be_used_are_refused(bins):
    frame, y = table(100)
    model = AdditiveGPRegressor(bins=bins, missing="ignore").fit(frame, y)
    expected = model.predict(frame)
    with pytest.raises(DataError, match="the table is empty"):
        model.update(frame[:0], y[:0])
    with pytest.raises(DataError, match=r"column 'x' spans .* rescale it"):
        model.update(frame[:2].assign(x=1e200), y[:2])
    with pytest.raises(DataError, match=r"'day' held dates .* holds numbers"):
        model.update(frame[:2].assign(day=3.0), y[:2])
    with pytest.raises(DataError, match="'open' held levels"):
        model.update(frame[:2].assign(open=[0, 1]), y[:2])
    with pytest.raises(DataError, match="zero in every row"):
        model.update(frame[:2], y[:2], np.zeros(2))
    with pytest.raises(ParameterError, match="relearn must be one of"):
        model.update(frame[:2], y[:2], relearn="no")
    with pytest.raises(DataError, match=r"the rows count for 1 rows"):
        model.update(frame[:1], y[:1], half_life=1, elapsed=30, relearn=True)
    np.testing.assert_array_equal(model.predict(frame), expected)


def test_what_the_summary_says_is_of_all_rows():
    X, y = numbers(200)
    y[100:] *= 3
    model = AdditiveGPRegressor(bins=None).fit(X[:100], y[:100])
    with pytest.warns(DataWarning, match=r"times the noise variance .* relearn=True"):
        model.update(X[100:], y[100:])
    assert model.target_variance_ == pytest.approx(np.var(y), rel=1e-9)
    assert "in 1 update" in str(model.summary())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.update(X[:5], y[:5], relearn=True)


def test_calibrations_end_with_an_update_and_know_its_rows():
    X, y = numbers(200)
    model = AdditiveGPRegressor(bins=None).fit(X[:60], y[:60])
    model.calibrate(X[60:100], y[60:100])
    with pytest.warns(DataWarning, match="calibration by 40 rows"):
        model.update(X[100:150], y[100:150])
    assert model.n_calibrated_ == 0
    seen = np.r_[0:60, 100:150]
    with pytest.raises(DataError, match="rows that the model was fitted to"):
        model.calibrate(X[seen], y[seen])
    assert model.calibrate(X[150:], y[150:]).n_calibrated_ == 50
