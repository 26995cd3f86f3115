"""Numbers that seem to stand for a missing value are reported; levels, caps and zeros are not."""

import warnings

import numpy as np
import pandas as pd
import pytest

from dsgp import (
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    ProjectionPursuitGPRegressor,
    load,
)
from dsgp.errors import DataError, DataWarning, ParameterError
from dsgp.kernels import Matern52
from dsgp.likelihoods import Poisson
from dsgp.models.gaussian import rows as gaussian_rows
from dsgp.rows.coded import Extremes
from dsgp.rows.sources import source_of
from tests.rows.kinds import collected

RNG = np.random.default_rng(0)
UNIFORM = RNG.uniform(0, 1, 600)
WHOLE = RNG.integers(18, 90, 600).astype(float)


def some(values, code, share=5):
    return np.where(np.arange(len(values)) % share == 0, code, values)


CODED = {
    "-999": (some(UNIFORM, -999.0), [-999]),
    "-9999 twice": (some(UNIFORM, -9999.0, 300), [-9999]),
    "netCDF": (some(UNIFORM, 9.969209968386869e36), [9.969209968386869e36]),
    "1e20": (some(1e3 * UNIFORM, 1e20), [1e20]),
    "float32": (some(UNIFORM, np.finfo(np.float32).min), [float(np.finfo(np.float32).min)]),
    "ages": (some(WHOLE, -99.0), [-99]),
    "999 beyond ages": (some(WHOLE, 999.0), [999]),
    "two codes": (some(some(UNIFORM, -999.0), -9999.0, 7), [-9999, -999]),
    "both ends": (some(some(UNIFORM, 9999.0), -9999.0, 7), [-9999, 9999]),
    "of its own": (some(UNIFORM, -12345.0), [-12345]),
    "levels": (some(np.arange(600) % 3 + 1.0, -999.0), [-999]),
    "most rows": (np.where(np.arange(600) % 10 == 0, UNIFORM, -999.0), [-999]),
}
PLAIN = {
    "continuous": UNIFORM,
    "zeros": some(100 + UNIFORM, 0.0),
    "minus one": some(0.01 * UNIFORM, -1.0),
    "capped": np.minimum(10 * UNIFORM, 8.0),
    "capped at a code": np.minimum(1100 * UNIFORM, 999.0),
    "two levels": some(np.zeros(600), 99.0),
    "three levels": some(some(np.full(600, 9.0), 99.0), 999.0, 7),
    "sizes": 2.0 ** (np.arange(600) % 9),
    "one outlier": np.append(UNIFORM, -9999.0),
    "an outlier twice": np.append(UNIFORM, [-777.0] * 2),
    "lognormal": np.round(np.exp(3 * RNG.standard_normal(600))),
    "constant": np.full(600, -999.0),
    "counts": RNG.poisson(0.3, 600).astype(float),
    "years": np.repeat([1999.0, 2000, 2001, 2024], 150),
}


@pytest.mark.parametrize("case", CODED)
@pytest.mark.parametrize("block", [37, 1000])
def test_an_exact_far_value_of_many_rows_is_a_code(case, block):
    values, codes = CODED[case]
    ends = Extremes()
    for start in range(0, len(values), block):
        ends = ends.merge(Extremes().add(values[start : start + block]))
    expected = {code: int((values == code).sum()) for code in codes}
    assert ends.codes_of_column() == expected


@pytest.mark.parametrize("case", PLAIN)
def test_levels_caps_and_zeros_are_no_codes(case):
    assert Extremes().add(PLAIN[case]).codes_of_column() == {}


@pytest.mark.parametrize("bins", [None, 64])
def test_a_fit_warns_of_codes_and_says_what_to_do(bins):
    X = pd.DataFrame({"a": CODED["-999"][0], "b": UNIFORM[::-1]})
    model = AdditiveGPRegressor(Matern52(0.3, 1.0), noise_variance=0.1, learner=None, bins=bins)
    message = (
        r"input column 'a': 120 values are exactly -999, and all others lie from .* "
        r"missing_values=\[-999\] with missing='ignore' \(--missing-value=-999"
    )
    with pytest.warns(DataWarning, match=message):
        model.fit(X, UNIFORM)
    with pytest.warns(DataWarning, match="target 'y': 120 values are exactly -999.* leave such"):
        model.fit(X[["b"]], CODED["-999"][0])


@pytest.mark.parametrize("bins", [None, 64])
def test_codes_that_are_named_count_as_missing(tmp_path, bins):
    coded = pd.DataFrame({"a": CODED["two codes"][0], "b": UNIFORM[::-1]})
    gaps = coded.mask(coded < -1)
    y = np.sin(6 * UNIFORM)
    given = {"kernel": Matern52(0.3, 1.0), "learner": None, "bins": bins, "missing": "ignore"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        told = AdditiveGPRegressor(missing_values=[-999, -9999], noise_variance=0.1, **given)
        told.fit(coded, y)
        expected = AdditiveGPRegressor(noise_variance=0.1, **given).fit(gaps, y)
    assert told.n_missing_ == expected.n_missing_
    np.testing.assert_array_equal(told.predict(coded), expected.predict(gaps))
    told.save(tmp_path / "m.zarr")
    again = load(tmp_path / "m.zarr")
    assert again.missing_values == (-999, -9999)
    np.testing.assert_array_equal(again.predict(coded.to_numpy()), expected.predict(gaps))
    counts = GeneralizedAdditiveGP("poisson", missing_values=np.array([-999.0, -9999]), **given)
    counts.fit(coded, np.arange(600) % 4).save(tmp_path / "c.zarr")
    assert load(tmp_path / "c.zarr").n_missing_ == expected.n_missing_


def test_a_code_is_an_error_where_values_must_be_there():
    coded = CODED["netCDF"][0].astype(np.float32)[:, None]
    (chunk,) = source_of(coded, UNIFORM, missing_values=[9.969209968386869e36]).chunks()
    with pytest.raises(DataError, match=r"'x0' contains NaN \(missing\) in row 0 .* 120 of 600"):
        chunk()
    source = source_of(coded, UNIFORM, missing="ignore", missing_values=[9.96920996838686904e36])
    assert np.isnan(collected(source).columns[0]).sum() == 120
    with pytest.raises(DataError, match=r"target 'y' is -999 in row 0 .*in 120 of 600 rows"):
        source_of(coded, CODED["-999"][0], missing_values=[-999])
    with pytest.raises(ParameterError, match="missing_values must be a list of numbers"):
        AdditiveGPRegressor(missing_values=-999).fit(coded, UNIFORM)


def test_bins_see_codes_of_every_block(monkeypatch):
    monkeypatch.setattr(gaussian_rows, "EXACT_INPUTS", 10)
    values = RNG.uniform(0, 1, 40_000)
    values[::4000] = -999.0
    model = AdditiveGPRegressor(Matern52(0.3, 1.0), noise_variance=0.1, learner=None)
    with pytest.warns(DataWarning, match="10 values are exactly -999"):
        model.fit(values[:, None], np.sin(6 * values))


@pytest.mark.parametrize("what", ["the target 'y'", "input column 'a'"])
@pytest.mark.parametrize(
    "model",
    [
        ProjectionPursuitGPRegressor(n_projections=1, n_starts=1),
        GeneralizedAdditiveGP(Poisson(), learner=None, kernel=Matern52(0.3, 1.0)),
        GeneralizedAdditiveGP(
            Poisson(), learner=None, kernel=Matern52(0.3, 1.0), bins=50, solver="backfitting"
        ),
    ],
    ids=["pursuit", "counts", "counts in bins"],
)
def test_models_of_every_kind_warn_of_codes(model, what):
    X = pd.DataFrame({"a": RNG.uniform(0, 1, 400), "b": RNG.uniform(0, 1, 400)})
    y = RNG.poisson(3.0, 400).astype(float)
    if what == "input column 'a'":
        X.loc[::7, "a"] = -9999
    else:
        y[::7] = 9999
    with pytest.warns(DataWarning, match=rf"^{what}: 58 values are exactly -?9999") as told:
        model.fit(X, y)
    messages = [str(one.message) for one in told if "9999" in str(one.message)]
    assert len(messages) == 1  # "far away" is not said as well
    takes_gaps = not isinstance(model, ProjectionPursuitGPRegressor)
    assert ("missing_values" in messages[0]) == (takes_gaps and what != "the target 'y'")


def test_far_counts_among_small_ones_end_in_an_answer():
    """Functions of other kernels to start from may lead to rates that overflow."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = rng.poisson(np.exp(np.sin(6 * X[:, 0]))).astype(float)
    y[::7] = 9999
    with pytest.warns(DataWarning, match="exactly 9999"):
        model = GeneralizedAdditiveGP(Poisson()).fit(X, y)
    assert np.isfinite(model.predict_latent(X)).all()
    assert np.isfinite(model.log_marginal_likelihood_)
