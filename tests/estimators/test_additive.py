"""The regressor as a user meets it: scikit-learn's manners, units, bad input, a dense answer."""

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

import dsgp
from dsgp import AdditiveGPRegressor
from dsgp.errors import ConvergenceWarning, DataError, DataWarning, ParameterError
from dsgp.kernels import Matern12, Matern32, Matern52, Matern72


def table(n=200, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.uniform(20, 70, n).round(),
            "dose": rng.exponential(0.01, n),
            "height": rng.normal(170, 10, n),
        }
    )
    f = np.sin(X["age"] / 8) + 30 * X["dose"]
    return X, 5 + f + noise * rng.standard_normal(n)


KEPT = {
    "age": Matern52(lengthscale=12.0, variance=1.5),
    "dose": Matern32(lengthscale=0.02, variance=0.7),
    "height": Matern72(lengthscale=40.0, variance=0.2),
}


def kept_model(**options):
    return AdditiveGPRegressor(terms=KEPT, noise_variance=0.01, learner=None, tol=1e-8, **options)


class Add(Matern):
    """scikit-learn's Matérn on one column."""

    def __init__(self, length_scale=1.0, length_scale_bounds="fixed", nu=1.5, column=0):
        super().__init__(length_scale, length_scale_bounds, nu)
        self.column = column

    def __call__(self, X, Y=None, eval_gradient=False):
        other = None if Y is None else Y[:, [self.column]]
        return super().__call__(X[:, [self.column]], other, eval_gradient)


def constant_of(covariance, y):
    """Generalised least squares: the estimate of a constant, and its variance."""
    ones = np.linalg.solve(covariance, np.ones(len(y)))
    return float(ones @ y / ones.sum()), 1 / float(ones.sum())


def test_mean_of_given_hyperparameters_is_scikit_learns():
    X, y = table()
    kernel = None
    for column, ours in enumerate(KEPT.values()):
        theirs = ConstantKernel(ours.variance, "fixed") * Add(
            ours.lengthscale, nu=ours.smoothness, column=column
        )
        kernel = theirs if kernel is None else kernel + theirs
    model = kept_model().fit(X, y)
    # A constant of a prior so wide that it says nothing.
    wide = kernel + ConstantKernel(1e6, "fixed")
    theirs = GaussianProcessRegressor(wide, alpha=0.01, optimizer=None)
    theirs.fit(X.to_numpy(), y - y.mean())
    new = table(50, seed=1)[0]
    expected, std = theirs.predict(new.to_numpy(), return_std=True)
    mean, own = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, y.mean() + expected, atol=1e-5)
    np.testing.assert_allclose(own, std, rtol=1e-4)


def test_one_term_is_an_exact_gp_in_the_users_units():
    X, y = table()
    X = X[["dose"]]
    kernel = Matern52(lengthscale=0.03, variance=2.0)
    model = AdditiveGPRegressor(kernel, noise_variance=0.02, learner=None, tol=1e-8).fit(X, y)
    assert model.kernels_["dose"].lengthscale == 0.03
    assert model.kernels_["dose"].variance == pytest.approx(2.0)
    assert model.noise_variance_ == pytest.approx(0.02)
    x = X["dose"].to_numpy()
    covariance = model.kernels_["dose"].covariance(x) + 0.02 * np.eye(len(x))
    offset, of_constant = constant_of(covariance, y)
    new = np.linspace(-0.01, 0.2, 7)
    cross = kernel.covariance(new, x)
    mean, std = (
        model.predict(new[:, None], return_std=True)
        if False
        else model.predict(pd.DataFrame({"dose": new}), return_std=True)
    )
    np.testing.assert_allclose(mean, offset + cross @ np.linalg.solve(covariance, y - offset))
    variance = 2.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(covariance, cross.T))
    variance += (1 - cross @ np.linalg.solve(covariance, np.ones(len(x)))) ** 2 * of_constant
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-8)
    noisy = model.predict(pd.DataFrame({"dose": new}), return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(noisy, np.sqrt(variance + 0.02), rtol=1e-8)
    log_density = -0.5 * (
        (y - offset) @ np.linalg.solve(covariance, y - offset)
        + np.linalg.slogdet(covariance)[1]
        + len(x) * np.log(2 * np.pi)
    )
    assert model.log_marginal_likelihood_ == pytest.approx(log_density, rel=1e-9)


def test_components_are_centred_and_add_up():
    X, y = table()
    weight = np.random.default_rng(0).uniform(0.2, 2, len(y))
    model = AdditiveGPRegressor().fit(X, y, sample_weight=weight)
    parts = model.components(X)
    assert parts["mean"].dims == ("row", "term")
    assert list(parts["term"].values) == ["age", "dose", "height"]
    np.testing.assert_allclose(np.average(parts["mean"], axis=0, weights=weight), 0, atol=1e-7)
    total = parts["intercept"].item() + parts["mean"].sum("term")
    np.testing.assert_allclose(total, model.predict(X), atol=1e-9)


def joint_posterior(X, new):
    """Dense posterior covariance of every term at new rows and at the training rows."""
    prior = sum(KEPT[name].covariance(X[name]) for name in X)
    factor = np.linalg.inv(prior + 0.01 * np.eye(len(X)))
    ones = factor.sum(axis=1)
    factor = factor - np.outer(ones, ones) / ones.sum()  # a constant is unknown, too
    for name in X:
        both = np.concatenate([new[name], X[name]])
        cross = KEPT[name].covariance(both, X[name])
        yield name, KEPT[name].covariance(both) - cross @ factor @ cross.T


def test_std_of_a_centred_component_is_that_of_the_difference():
    X, y = table(80)
    model = kept_model().fit(X, y)
    new = table(9, seed=4)[0]
    std = model.components(new)["std"]
    difference = np.hstack([np.eye(9), np.full((9, len(X)), -1 / len(X))])
    for name, posterior in joint_posterior(X, new):
        expected = np.sqrt(np.diag(difference @ posterior @ difference.T))
        np.testing.assert_allclose(std.sel(term=name), expected, rtol=1e-6)


def test_std_and_covariance_of_the_sum_are_exact():
    X, y = table(80)
    model = kept_model().fit(X, y)
    new = table(9, seed=4)[0]
    prior = sum(KEPT[name].covariance(X[name]) for name in X) + 0.01 * np.eye(len(X))
    cross = sum(KEPT[name].covariance(new[name], X[name]) for name in X)
    exact = sum(KEPT[name].covariance(new[name]) for name in X) - cross @ np.linalg.solve(
        prior, cross.T
    )
    left = 1 - cross @ np.linalg.solve(prior, np.ones(len(X)))
    exact += np.outer(left, left) * constant_of(prior, y)[1]
    np.testing.assert_allclose(
        model.predict(new, return_std=True)[1], np.sqrt(np.diag(exact)), rtol=1e-6
    )
    np.testing.assert_allclose(model.covariance(new), exact, atol=1e-5 * exact.max())
    noisy = model.covariance(new, include_noise=True)
    np.testing.assert_allclose(noisy - model.covariance(new), 0.01 * np.eye(9), atol=1e-12)


def test_samples_have_the_posterior_moments():
    X, y = table(80)
    model = kept_model().fit(X, y)
    new = table(5, seed=4)[0]
    drawn = model.sample(new, 4000, random_state=0)
    assert drawn.shape == (4000, 5)
    mean, covariance = model.predict(new), model.covariance(new)
    std = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 * std.max() / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.15 * covariance.max())
    # BLAS may choose another kernel for another number of columns.
    np.testing.assert_allclose(drawn[:3], model.sample(new, 3, random_state=0), rtol=1e-12)
    with_noise = model.sample(new, 4000, random_state=0, include_noise=True)
    assert np.var(with_noise - drawn) == pytest.approx(0.01, rel=0.05)


def test_units_follow_the_data():
    X, y = table()
    model = AdditiveGPRegressor().fit(X, y)
    scaled = AdditiveGPRegressor().fit(X * 1000.0, y * 1e6 + 3.0)
    np.testing.assert_allclose(scaled.predict(X * 1000.0), model.predict(X) * 1e6 + 3.0, rtol=1e-5)
    for name, kernel in model.kernels_.items():
        assert scaled.kernels_[name].lengthscale == pytest.approx(
            kernel.lengthscale * 1e3, rel=0.02
        )
    assert scaled.noise_variance_ == pytest.approx(model.noise_variance_ * 1e12, rel=1e-3)
    difference = model.log_marginal_likelihood_ - scaled.log_marginal_likelihood_
    assert difference == pytest.approx(len(y) * np.log(1e6), abs=0.05)


@pytest.mark.parametrize("factor", [1e-90, 1e-12, 1e-3, 50.0, 1e6, 1e12])
def test_scaling_all_weights_changes_the_noise_and_nothing_else(factor):
    X, y = table()
    weight = np.random.default_rng(0).uniform(0.2, 2, len(y))
    model = AdditiveGPRegressor(noise_variance=0.02).fit(X, y, weight)
    scaled = AdditiveGPRegressor(noise_variance=0.02 * factor).fit(X, y, factor * weight)
    assert scaled.noise_variance_ == pytest.approx(factor * model.noise_variance_, rel=1e-6)
    mean, std = model.predict(X, return_std=True)
    scaled_mean, scaled_std = scaled.predict(X, return_std=True)
    np.testing.assert_allclose(scaled_mean, mean, atol=1e-6)
    np.testing.assert_allclose(scaled_std, std, rtol=1e-5)
    assert scaled.log_marginal_likelihood_ == pytest.approx(model.log_marginal_likelihood_)


def test_the_likelihood_with_weights_is_that_of_the_rows():
    X, y = table()
    X = X[["dose"]]
    weight = np.random.default_rng(0).uniform(0.2, 2, len(y)) * 1e3
    kernel = Matern52(lengthscale=0.03, variance=2.0)
    model = AdditiveGPRegressor(kernel, noise_variance=20.0, learner=None, tol=1e-8)
    model.fit(X, y, weight)
    covariance = kernel.covariance(X["dose"]) + np.diag(20.0 / weight)
    centred = y - constant_of(covariance, y)[0]
    expected = -0.5 * (
        centred @ np.linalg.solve(covariance, centred)
        + np.linalg.slogdet(covariance)[1]
        + len(y) * np.log(2 * np.pi)
    )
    assert model.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-9)


def test_a_weight_of_0_is_no_row():
    X, y = table()
    weight = np.ones(len(y))
    weight[50:] = 0
    # what is not a row may be anything finite
    y = y.where(weight > 0, 1e9)
    with_zeros = AdditiveGPRegressor().fit(X, y, weight)
    without = AdditiveGPRegressor().fit(X[:50], y[:50])
    np.testing.assert_array_equal(with_zeros.predict(X), without.predict(X))


def test_learning_recovers_what_made_the_data():
    X, y = table(1000)
    model = AdditiveGPRegressor().fit(X, y)
    assert model.converged_
    assert model.noise_variance_ == pytest.approx(0.01, rel=0.15)
    assert (np.diff(model.learner_trace_) > -1e-8).all()
    new, _ = table(2000, seed=9)
    f = 5 + np.sin(new["age"] / 8) + 30 * new["dose"]
    mean, std = model.predict(new, return_std=True)
    assert np.mean(np.abs(mean - f) < 1.96 * std) > 0.88
    height = model.components(new)["mean"].sel(term="height")
    assert np.abs(height).max() < 0.05


def test_given_values_are_starts_and_fixed_ones_stay():
    X, y = table()
    terms = {
        "age": Matern52(lengthscale=9.0, fixed="lengthscale"),
        "dose": Matern32(lengthscale=0.5),
    }
    model = AdditiveGPRegressor(terms=terms, noise_variance=0.02, fixed_noise=True).fit(X, y)
    assert model.kernels_["age"].lengthscale == 9.0
    assert model.kernels_["dose"].lengthscale != 0.5
    assert isinstance(model.kernels_["dose"], Matern32)
    assert isinstance(model.kernels_["height"], Matern52)
    assert model.noise_variance_ == pytest.approx(0.02)


def test_backfitting_agrees_with_cg_and_says_so_when_it_has_not_arrived():
    X, y = table()
    exact = kept_model().fit(X, y)
    with pytest.warns(ConvergenceWarning, match="solver='backfitting' stopped after 5 iterations"):
        model = kept_model(solver="backfitting", max_iter=5).fit(X, y)
    assert not model.converged_
    assert model.solver_iterations_ == 5
    assert model.error_bound_ > 1e-8
    assert np.abs(model.predict(X) - exact.predict(X)).max() < 0.01
    learned = AdditiveGPRegressor(solver="backfitting", max_iter=1000).fit(X, y)
    reference = AdditiveGPRegressor().fit(X, y)
    assert np.abs(learned.predict(X) - reference.predict(X)).max() < 0.02


def test_the_learner_says_when_it_was_stopped():
    X, y = table()
    with pytest.warns(
        ConvergenceWarning, match=r"learner='marginal' stopped after 1 .*learner_max_iter"
    ):
        model = AdditiveGPRegressor(learner_max_iter=1, learner_tol=1e-9).fit(X, y)
    assert not model.converged_


def test_columns_are_matched_by_name():
    X, y = table()
    model = AdditiveGPRegressor().fit(X, y)
    shuffled = X[["height", "age", "dose"]].assign(extra="text", another=np.nan)
    np.testing.assert_array_equal(model.predict(shuffled), model.predict(X))
    np.testing.assert_array_equal(model.predict(X.to_numpy()), model.predict(X))
    with pytest.raises(DataError, match="Missing: 'dose'"):
        model.predict(X.drop(columns="dose"))


def test_a_prediction_does_not_depend_on_its_company(monkeypatch):
    X, y = table(300)
    model = AdditiveGPRegressor().fit(X, y)
    mean, std = model.predict(X, return_std=True)
    for rows in (slice(0, 1), slice(7, 8), slice(100, 300)):
        part = model.predict(X[rows], return_std=True)
        np.testing.assert_array_equal(part[0], mean[rows])
        np.testing.assert_allclose(part[1], std[rows], rtol=1e-9)  # dense: BLAS rounds
    monkeypatch.setattr("dsgp.models.additive._ROW_BLOCK", 17)
    monkeypatch.setattr("dsgp.compute.WORTH_A_GRAPH", 0.0)
    blocked = model.predict(X, return_std=True)
    np.testing.assert_array_equal(blocked[0], mean)
    np.testing.assert_allclose(blocked[1], std, rtol=1e-9)


def test_far_from_the_data_it_reverts_to_the_prior():
    X, y = table()
    model = AdditiveGPRegressor().fit(X, y)
    mean, std = model.predict([[1e6, 1e6, 1e6], [-1e300, 1e300, 1e300]], return_std=True)
    prior = np.sqrt(sum(kernel.variance for kernel in model.kernels_.values()))
    # To the constant, which is not known, either.
    constant = model.intercept_ - sum(term.centre for term in model.terms_)
    np.testing.assert_allclose(mean, constant, rtol=1e-6)
    covariance = sum(model.kernels_[name].covariance(X[name]) for name in X)
    covariance += model.noise_variance_ * np.eye(len(X))
    estimate, variance = constant_of(covariance, y)
    assert constant == pytest.approx(estimate, rel=1e-3)
    np.testing.assert_allclose(std, np.sqrt(prior**2 + variance), rtol=1e-6)


def test_a_constant_column_contributes_nothing():
    X, y = table()
    with pytest.warns(DataWarning, match="'flat'"):
        model = AdditiveGPRegressor().fit(X.assign(flat=3.0), y)
    without = AdditiveGPRegressor().fit(X, y)
    assert model.constant_columns_ == ["flat"]
    np.testing.assert_array_equal(model.predict(X), without.predict(X))  # nor is it asked for
    assert "flat" not in model.kernels_
    np.testing.assert_array_equal(model.predict(X.assign(flat=9.0)), without.predict(X))
    assert "flat" in model.summary()


def test_only_constant_columns_give_the_mean():
    with pytest.warns(DataWarning):
        model = AdditiveGPRegressor().fit(np.ones((20, 2)), np.arange(20.0))
    mean, std = model.predict([[1.0, 1.0]], return_std=True, include_noise=True)
    assert mean[0] == pytest.approx(9.5)
    # One of the targets' degrees of freedom is the mean's, which is not known.
    assert std[0] == pytest.approx(np.std(np.arange(20.0), ddof=1) * np.sqrt(1 + 1 / 20), rel=1e-6)
    assert model.components([[1.0, 1.0]])["mean"].shape == (1, 0)
    assert "constant" in model.summary()


@pytest.mark.parametrize("value", [0.0, 7.25, 0.1, -1e9])
def test_a_constant_target_is_predicted_everywhere(value):
    X, _ = table()
    with pytest.warns(DataWarning, match="target is constant"):
        model = AdditiveGPRegressor().fit(X, np.full(len(X), value))
    mean, std = model.predict(X, return_std=True, include_noise=True)
    np.testing.assert_allclose(mean, value, rtol=1e-9)
    assert np.isfinite(std).all()


@pytest.mark.parametrize("n", [2, 3])
def test_a_handful_of_rows(n):
    X, y = table(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = AdditiveGPRegressor().fit(X, y)
    mean, std = model.predict(X, return_std=True, include_noise=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


@pytest.mark.parametrize("make", [Matern32, Matern52, Matern72])
def test_a_target_without_noise_is_learned_to_the_tolerance(make):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (600, 3))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = AdditiveGPRegressor(make()).fit(X, f)
    assert model.converged_
    np.testing.assert_allclose(model.predict(X), f, atol=1e-3)


def ugly_tables():
    rng = np.random.default_rng(5)
    n = 80
    X = rng.standard_normal((n, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    yield "as is", X, y, None
    yield "heavy tails", np.exp(6 * X), y, None
    yield "nanosecond stamps", 1.7e18 + 1e12 * X, y, None
    yield "tiny and huge units", X * [1e-100, 1e100, 1e-9], y * 1e-40, None
    yield "outliers", X, np.where(np.arange(n) % 20 == 0, 1e6, y), None
    yield "an offset", X, 1e15 + 100 * y, None
    yield "two levels", np.column_stack([X[:, 0], X[:, 1] > 0, X[:, 2] > 1.5]), y, None
    yield "near duplicates", np.column_stack([X[:, 0], X[:, 0] + 1e-9, X[:, 0]]), y, None
    yield "weights apart", X, y, 10.0 ** rng.uniform(-6, 6, n)
    yield "more columns than rows", rng.standard_normal((12, 30)), rng.standard_normal(12), None
    yield "only noise", X, rng.standard_normal(n), None
    yield "integers", rng.integers(0, 4, (n, 3)), y.round(), None


@pytest.mark.parametrize("make", [Matern12, Matern52, Matern72])
@pytest.mark.parametrize(
    ("X", "y", "weight"), [case[1:] for case in ugly_tables()], ids=[c[0] for c in ugly_tables()]
)
def test_ugly_tables_give_finite_answers_and_a_bound_that_never_falls(make, X, y, weight):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "the target 'y': 4 values are exactly 1000000")
        warnings.filterwarnings("ignore", "the residuals of the target 'y' are strongly skewed")
        model = AdditiveGPRegressor(make(), learner_max_iter=40).fit(X, y, weight)
        mean, std = model.predict(X, return_std=True)
        parts = model.components(X)
    for values in (mean, std, parts["mean"], parts["std"], model.learner_trace_):
        assert np.isfinite(values).all()
    assert (np.diff(model.learner_trace_) >= 0).all()
    # rarely worse than the mean, and never by much
    assert np.average((y - mean) ** 2, weights=weight) <= 1.01 * np.cov(y, aweights=weight)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": 1e-310}, DataError, r"column 'age' spans .* rescale it"),
        ({"X": 1e304}, DataError, r"column 'age' spans .* rescale it"),
        ({"y": 1e300}, DataError, "target reaches .* rescale it"),
        ({"y": 1e-155}, DataError, "target has a standard deviation of .* rescale it"),
        ({"weight": 1e300}, DataError, "only ratios matter: rescale it"),
        ({"noise_variance": 1e-300, "fixed_noise": True}, ParameterError, "float64 resolves"),
    ],
)
def test_what_float64_cannot_hold_is_refused(change, error, message):
    X, y = table(50)
    X, y = X * change.pop("X", 1.0), y * change.pop("y", 1.0)
    weight = np.full(50, change.pop("weight", 1.0))
    with pytest.raises(error, match=message):
        AdditiveGPRegressor(**change).fit(X, y, weight)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.array([["1", "2"], ["3", "4"]]), [1.0, 2.0], "X is text"),
        (
            np.ones((2, 1)),
            np.array(["1", "2"]),
            "target 'y' is not numeric .*it holds numbers as text .* in 2 of 2 rows",
        ),
        (np.ma.masked_array(np.ones((2, 1)), [[0], [1]]), [1.0, 2.0], "X is a masked array"),
        (np.ones((2, 1)), np.ma.masked_array([1.0, 2.0], [0, 1]), "target 'y' is a masked array"),
    ],
)
def test_text_and_masked_arrays_are_refused(X, y, message):
    with pytest.raises(DataError, match=message):
        AdditiveGPRegressor().fit(X, y)


def test_numpy_scalars_as_parameters_are_stored(tmp_path):
    X, y = table(40)
    model = AdditiveGPRegressor(
        Matern52(np.float32(2.0)), tol=np.float32(1e-3), learner_max_iter=np.int64(50)
    ).fit(X, y)
    model.save(tmp_path / "m.zarr")
    assert dsgp.load(tmp_path / "m.zarr").get_params()["learner_max_iter"] == 50


def test_one_row_with_given_hyperparameters():
    model = AdditiveGPRegressor(
        Matern52(lengthscale=1.0, variance=1.0), noise_variance=0.5, learner=None
    )
    with pytest.warns(DataWarning):  # one row: every column is constant, and so is the target
        model.fit([[1.0]], [2.0])
    assert model.predict([[5.0]])[0] == 2.0


def bad(**changes):
    X, y = table(30)
    weight = None
    if "y" in changes:
        y = changes["y"](y.copy())
    if "X" in changes:
        X = changes["X"](X.copy())
    if "weight" in changes:
        weight = changes["weight"](np.ones(30))
    return X, y, weight


def put(value, row, column=None):
    def change(data):
        if column is None:
            data = data.astype(object) if isinstance(value, str) else data
            data[row] = value
        else:
            data[column] = data[column].astype(object) if isinstance(value, str) else data[column]
            data.loc[row, column] = value
        return data

    return change


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": put(np.nan, 3, "dose")}, r"'dose' contains NaN \(missing\) in row 3 .* 1 of 30"),
        ({"X": put(-np.inf, 4, "age")}, r"'age' contains infinity in row 4"),
        ({"X": put("tall", 0, "height")}, r"'height' is not numeric \(type .*'tall' in row 0"),
        ({"X": lambda X: X.assign(age=X["age"].astype("Int64").mask(X.index == 7))}, "row 7"),
        ({"X": lambda X: X[:0]}, r"empty: 0 sample\(s\)"),
        ({"X": lambda X: X[[]]}, r"no input column"),
        ({"X": lambda X: X[:1]}, r"X has 1 rows but y has 30"),
        ({"X": lambda X: X.set_axis(["a", "b", "a"], axis=1)}, r"duplicate column name 'a'"),
        ({"y": put(np.nan, 2)}, r"target 'y' contains NaN \(missing\) in row 2"),
        ({"y": put(np.inf, 2)}, r"target 'y' contains infinity in row 2"),
        ({"y": put("high", 2)}, r"target 'y' is not numeric .* convert it to numbers$"),
        ({"y": lambda y: None}, r"target y is None"),
        ({"weight": put(-1.0, 5)}, r"sample_weight is negative in row 5"),
        ({"weight": put(np.nan, 5)}, r"sample_weight contains NaN"),
        ({"weight": lambda w: w[:9]}, r"sample_weight must have shape \(30,\)"),
        ({"weight": lambda w: 0 * w}, r"sample_weight is zero in every row"),
    ],
)
def test_bad_input_is_named(changes, message):
    X, y, weight = bad(**changes)
    with pytest.raises(DataError, match=message):
        AdditiveGPRegressor().fit(X, y, weight)


def test_one_row_cannot_teach():
    with (
        pytest.warns(DataWarning),
        pytest.raises(DataError, match=r"1 sample .* at least 2 rows"),
    ):
        AdditiveGPRegressor().fit([[1.0, 2.0]], [3.0])


def test_bad_rows_at_predict_are_named():
    X, y = table()
    model = AdditiveGPRegressor().fit(X, y)
    X.loc[150, "dose"] = np.nan
    with pytest.raises(DataError, match=r"'dose' contains NaN .* row 150"):
        model.predict(X)
    with pytest.raises(DataError, match=r"X has 4 features, but .* expecting 3 features"):
        model.predict(np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"solver": "magic"},
            r"solver must be one of .*'cg', .* got 'magic'",
        ),
        ({"learner": "adam"}, "learner must be one of"),
        ({"tol": 0.0}, "tol must be a positive finite number, got 0.0"),
        ({"noise_variance": -1}, "noise_variance must be a positive finite number"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ({"fixed_noise": True}, "fixed_noise=True keeps noise_variance, but it is None"),
        ({"kernel": "matern"}, r"^kernel: a kernel must be one of dsgp.kernels, .* got 'matern'"),
        ({"kernel": Matern52}, "did you forget the brackets"),
        ({"terms": [Matern52()]}, "names no column"),
        ({"terms": {"age": 3}}, "column 'age': a kernel must be"),
        ({"terms": {"wage": Matern12()}}, r"terms names \['wage'\], which are not among"),
        ({"learner": None}, "kernel of term 'age', .* has no lengthscale and no variance"),
        ({"learner": None, "kernel": Matern52(1.0)}, "has no variance: give it"),
        ({"learner": None, "kernel": Matern52(1.0, 1.0)}, "noise_variance is None: give it"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ParameterError, match=message):
        AdditiveGPRegressor(**options).fit(*table(30))


def test_a_saved_model_predicts_the_same_in_another_process(tmp_path):
    X, y = table()
    model = AdditiveGPRegressor(terms={"age": Matern32()}, tol=1e-5).fit(X, y)
    model.save(tmp_path / "model.zarr")
    X.to_parquet(tmp_path / "X.parquet")
    code = (
        "import dsgp, numpy as np, pandas as pd, sys; m = dsgp.load(sys.argv[1] + '/model.zarr'); "
        "X = pd.read_parquet(sys.argv[1] + '/X.parquet'); "
        "c = m.components(X); "
        "np.savez(sys.argv[1] + '/out.npz', *m.predict(X, return_std=True), c['mean'], c['std'])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    other = np.load(tmp_path / "out.npz")
    mean, std = model.predict(X, return_std=True)
    parts = model.components(X)
    for ours, theirs in zip((mean, std, parts["mean"], parts["std"]), other.values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_loaded_model_is_the_whole_model(tmp_path):
    X, y = table()
    for data in (X, X.to_numpy()):
        model = AdditiveGPRegressor(Matern72(), noise_variance=0.02).fit(data, y)
        model.save(tmp_path / "model.zarr", overwrite=True)
        loaded = dsgp.load(tmp_path / "model.zarr")
        assert loaded.get_params() == model.get_params()
        ours, theirs = vars(model), vars(loaded)
        assert set(ours) == set(theirs)
        for name in set(ours) - {"model_", "feature_names_in_", "interaction_scores_"}:
            assert ours[name] == theirs[name], name
        pd.testing.assert_frame_equal(model.interaction_scores_, loaded.interaction_scores_)
        assert (loaded.kernels_, loaded.intercept_) == (model.kernels_, model.intercept_)
        for now, then in zip(
            loaded.predict(data, return_std=True), model.predict(data, return_std=True), strict=True
        ):
            np.testing.assert_array_equal(now, then)
        drawn = [fitted.sample(data, 2, random_state=1) for fitted in (model, loaded)]
        np.testing.assert_array_equal(*drawn)
        assert loaded.summary() == model.summary()
        assert clone(loaded).get_params() == model.get_params()


def test_fitting_again_forgets_the_first_fit():
    X, y = table()
    model = AdditiveGPRegressor().fit(X, y)
    model.fit(X[["age"]].to_numpy(), y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 1
    assert list(model.kernels_) == ["x0"]


def test_the_same_data_give_the_same_model():
    X, y = table()
    first, second = (AdditiveGPRegressor().fit(X, y) for _ in range(2))
    assert first.kernels_ == second.kernels_
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    # and shuffled rows change it by rounding only
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = AdditiveGPRegressor().fit(X.iloc[order], y.iloc[order])
    np.testing.assert_allclose(shuffled.predict(X), first.predict(X), atol=1e-3)


def test_summary_reports_the_approximations():
    X, y = table()
    text = AdditiveGPRegressor().fit(X, y).summary()
    for words in (
        "age",
        "Matern52",
        "lengthscale",
        "noise std",
        "edf",
        "explained variance",
        "effective dof",
        "std of predictions   exact (dense)",
        "every distinct value is a point",
        "nodes per term",
        "prior std (tol 0.0001)",
        "converged            yes",
    ):
        assert words in text
