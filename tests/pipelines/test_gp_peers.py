"""Exact and sparse Gaussian processes and the SVM: dense formulas, scikit-learn, bad input."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.svm import SVC

from dsgp.errors import DataError, MemoryLimitError, ParameterError
from pipelines.peers.gp import (
    Fic,
    FullGP,
    FullGPLaplace,
    Ivm,
    Spgp,
    Svm,
    classifiers,
)
from pipelines.peers.gp.standardised import Standardised

VALUES = np.log([0.8, 1.7, 2.0, 0.05])  # two lengthscales, variance, noise


@pytest.fixture
def numbers():
    """A smooth function of two columns with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (60, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(60)


@pytest.fixture
def labels():
    rng = np.random.default_rng(1)
    X, X_test = rng.uniform(-2, 2, (240, 2)), rng.uniform(-2, 2, (200, 2))
    y, y_test = ((np.hypot(*Z.T) + 0.2 * rng.standard_normal(len(Z)) > 1.4) for Z in (X, X_test))
    return X, y.astype(float), X_test, y_test.astype(float)


def covariance(A, B, values=VALUES):
    *lengthscales, variance, _ = np.exp(values)
    squares = ((A[:, None] - B[None]) ** 2 / np.square(lengthscales)).sum(axis=2)
    return variance * np.exp(-0.5 * squares)


def dense_fitc(X, y, active, values, X_test):
    """Log likelihood, and moments of the function at test rows (Snelson and Ghahramani, 2006)."""
    noise = np.exp(values[-1])
    jitter = 1e-8 * np.exp(values[-2]) * np.eye(len(active))
    K_uu, K_xu = covariance(active, active, values) + jitter, covariance(X, active, values)
    Q = K_xu @ np.linalg.solve(K_uu, K_xu.T)
    C = Q + np.diag(np.exp(values[-2]) - np.diag(Q)) + noise * np.eye(len(X))
    K_su = covariance(X_test, active, values)
    Q_s = K_su @ np.linalg.solve(K_uu, K_xu.T)
    mean = Q_s @ np.linalg.solve(C, y)
    variance = np.exp(values[-2]) - np.einsum("ij,ji->i", Q_s, np.linalg.solve(C, Q_s.T))
    return multivariate_normal(np.zeros(len(X)), C).logpdf(y), mean, variance


# --- exact ----------------------------------------------------------------------------------------


def test_exact_likelihood_and_gradient_are_those_of_scikit_learn(numbers):
    pytest.importorskip("gpytorch")
    from pipelines.peers.gp.exact import ExactGP  # noqa: PLC0415 — needs GPyTorch

    X, y = numbers
    kernel = ConstantKernel(2.0) * RBF([0.8, 1.7]) + WhiteKernel(0.05)
    theirs = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(X, y)
    value, gradient = theirs.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    ours = ExactGP.of_columns(2).objective(X, y)(VALUES)
    assert -len(X) * ours[0] == pytest.approx(value, rel=1e-10)
    in_our_order = gradient[[1, 2, 0, 3]]
    np.testing.assert_allclose(-len(X) * ours[1], in_our_order, rtol=1e-8)


def test_exact_predictions_are_dense_ones(numbers, monkeypatch):
    pytest.importorskip("gpytorch")
    from pipelines.peers.gp import exact  # noqa: PLC0415 — needs GPyTorch

    X, y = numbers
    X_test = np.random.default_rng(2).uniform(-2, 2, (25, 2))
    model = exact.ExactGP.of_columns(2)
    model.hyperparameters.set(VALUES)
    monkeypatch.setattr(exact, "TEST_ROWS", 10)
    mean, variance = model.predict(X, y, X_test)
    gain = np.linalg.solve(covariance(X, X) + 0.05 * np.eye(60), covariance(X, X_test))
    np.testing.assert_allclose(mean, gain.T @ y, rtol=1e-8)
    expected = 2.0 - np.einsum("ij,ij->j", gain, covariance(X, X_test))
    np.testing.assert_allclose(variance, expected, rtol=1e-8)


def test_few_evaluations_on_all_rows_come_close_to_a_search_of_all(numbers):
    pytest.importorskip("gpytorch")
    from pipelines.peers.gp.exact import ExactGP  # noqa: PLC0415 — needs GPyTorch

    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (400, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(400)
    whole = FullGP(subset=400).fit_predict(X, y, X[:5])
    few = FullGP(subset=100, full_evaluations=5).fit_predict(X, y, X[:5])
    none_learned = FullGP(subset=100, full_evaluations=1).fit_predict(X, y, X[:5])
    assert few.details["evaluations"] <= 5
    assert none_learned.details["evaluations"] == 1
    best = whole.details["log_likelihood"]
    assert none_learned.details["log_likelihood"] < few.details["log_likelihood"] <= best + 1e-6
    assert few.details["log_likelihood"] > best - 1.0

    # The optimum is one: scipy's, of the same objective and from elsewhere.
    model, data = ExactGP.of_columns(2), Standardised.of_numbers(X, y, X)
    found = minimize(model.objective(data.X, data.y), VALUES, jac=True, method="BFGS")
    assert -400 * found.fun == pytest.approx(best, abs=0.01)


def test_too_many_rows_for_the_memory_are_refused(monkeypatch):
    pytest.importorskip("gpytorch")
    monkeypatch.setattr("dsgp.memory.available", lambda: 1000)
    X = np.arange(20.0)[:, None]
    with pytest.raises(MemoryLimitError, match="spgp"):
        FullGP().fit_predict(X, X[:, 0], X)
    with pytest.raises(MemoryLimitError, match="fic or ivm"):
        FullGPLaplace().fit_predict(X, (X[:, 0] > 3) * 1.0, X)


# --- sparse ---------------------------------------------------------------------------------------


def test_fitc_likelihood_gradient_and_predictions_are_dense_ones(numbers, monkeypatch):
    pytest.importorskip("gpytorch")
    from pipelines.peers.gp import fitc  # noqa: PLC0415 — needs GPyTorch

    X, y = numbers
    active = X[:12]
    X_test = np.random.default_rng(2).uniform(-2, 2, (25, 2))
    model = fitc.FitcGP(X, y, active)
    value, gradient = model.objective()(VALUES)
    expected, mean, variance = dense_fitc(X, y, active, VALUES, X_test)
    assert -60 * value == pytest.approx(expected, rel=1e-9)

    def dense(values):
        return -dense_fitc(X, y, active, values, X_test)[0] / 60

    np.testing.assert_allclose(gradient, approx_fprime(VALUES, dense, 1e-6), rtol=1e-4, atol=1e-6)
    model.hyperparameters.set(VALUES)
    monkeypatch.setattr(fitc, "TEST_ROWS", 10)
    got = model.predict(X_test)
    np.testing.assert_allclose(got[0], mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(got[1], variance, rtol=1e-7)


def test_fitc_takes_test_rows_that_are_training_rows_as_new_ones(numbers):
    pytest.importorskip("gpytorch")
    from pipelines.peers.gp.fitc import FitcGP  # noqa: PLC0415 — needs GPyTorch

    X, y = numbers
    model = FitcGP(X, y, X[:12])
    model.hyperparameters.set(VALUES)
    mean, variance = model.predict(X)
    _, expected_mean, expected_variance = dense_fitc(X, y, X[:12], VALUES, X)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-7)


def test_spgp_with_all_rows_active_is_exact(numbers):
    pytest.importorskip("gpytorch")
    X, y = numbers
    exact, sparse = (peer.fit_predict(X, y, X[:20] + 0.1) for peer in (FullGP(), Spgp(size=1000)))
    assert sparse.details["size"] == 60
    assert sparse.details["log_likelihood"] == pytest.approx(
        exact.details["log_likelihood"], abs=0.01
    )
    np.testing.assert_allclose(sparse.mean, exact.mean, atol=0.01)
    np.testing.assert_allclose(sparse.std, exact.std, atol=0.01)


@pytest.mark.parametrize("kind", [FullGP, Spgp])
def test_units_and_constant_columns_change_nothing(numbers, kind):
    pytest.importorskip("gpytorch")
    X, y = numbers
    peer = kind()
    plain = peer.fit_predict(X, y, X[:10])
    wide = np.column_stack([1000 * X[:, 0] + 7, np.full(60, 3.0), X[:, 1]])
    scaled = peer.fit_predict(wide, 100 * y + 5, wide[:10])
    np.testing.assert_allclose(scaled.mean, 100 * plain.mean + 5, rtol=1e-4)
    np.testing.assert_allclose(scaled.std, 100 * plain.std, rtol=1e-3)
    assert scaled.noise_variance == pytest.approx(1e4 * plain.noise_variance, rel=1e-3)
    assert set(plain.seconds) == set(plain.cpu_seconds) == {"fit", "predict"}


# --- labels ---------------------------------------------------------------------------------------


def test_laplace_predicts_in_batches_and_keeps_to_its_iterations(labels, monkeypatch):
    X, y, X_test, y_test = labels
    whole = FullGPLaplace().fit_predict(X, y, X_test)
    assert np.mean((whole.mean > 0.5) != y_test) < 0.15
    assert whole.details["iterations"] <= 25
    monkeypatch.setattr(classifiers, "TEST_ROWS", 30)
    np.testing.assert_allclose(FullGPLaplace().fit_predict(X, y, X_test).mean, whole.mean)
    short = FullGPLaplace(iterations=1).fit_predict(X, y, X_test)
    assert short.details["iterations"] == 1
    assert short.details["log_likelihood"] < whole.details["log_likelihood"]


def test_svm_is_one_machine_of_all_rows_with_a_sigmoid(labels):
    X, y, X_test, y_test = labels
    fit = Svm().fit_predict(X, y, X_test)
    assert np.mean((fit.mean > 0.5) != y_test) < 0.15
    data = Standardised.of_labels(X, y, X_test)
    machine = SVC(C=fit.details["C"], gamma=fit.details["gamma"]).fit(data.X, data.y)
    logits = np.log(fit.mean / (1 - fit.mean))
    slope, offset = np.polyfit(machine.decision_function(data.X_test), logits, 1)
    assert slope > 0
    np.testing.assert_allclose(
        slope * machine.decision_function(data.X_test) + offset, logits, atol=1e-6
    )


def test_svm_chooses_on_some_of_the_rows(labels):
    X, y, X_test, y_test = labels
    fit = Svm(grid_rows=80).fit_predict(X, y, X_test)
    assert np.mean((fit.mean > 0.5) != y_test) < 0.15
    with pytest.raises(DataError, match="5 rows of each class"):
        Svm().fit_predict(X[:10], np.arange(10) < 4, X_test)


def test_fic_agrees_with_the_exact_classifier(labels):
    pytest.importorskip("gpytorch")
    X, y, X_test, y_test = labels
    peer = Fic(steps=400)
    fit = peer.fit_predict(X, y, X_test)
    assert np.mean((fit.mean > 0.5) != y_test) < 0.15
    exact = FullGPLaplace().fit_predict(X, y, X_test).mean
    assert np.mean(np.abs(fit.mean - exact)) < 0.05
    assert fit.details["steps"] == 400
    np.testing.assert_array_equal(peer.fit_predict(X, y, X_test).mean, fit.mean)


# --- what is asked for ----------------------------------------------------------------------------


def test_what_is_not_installed_is_named_with_the_remedy(monkeypatch, numbers):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for peer in (FullGP(), Spgp(), Fic()):
        assert 'gpytorch not installed: pip install ".[baselines]"' in peer.lacking()
    for peer in (FullGPLaplace(), Svm(), Ivm()):
        assert peer.lacking() is None
    with pytest.raises(ParameterError, match="spgp: torch and gpytorch not installed"):
        Spgp().fit_predict(*numbers, numbers[0])


@pytest.mark.parametrize("kind", [FullGPLaplace, Fic, Ivm, Svm])
def test_other_labels_are_refused(kind, labels):
    if kind().lacking():
        pytest.skip("needs GPyTorch")
    X, y, X_test, _ = labels
    with pytest.raises(DataError, match="labels must be 0 and 1, both of them; got -1, 1"):
        kind().fit_predict(X, 2 * y - 1, X_test)


def test_input_that_cannot_be_fitted_is_refused(numbers):
    X, y = numbers
    hole = X.copy()
    hole[3, 1] = np.nan
    with pytest.raises(DataError, match="column 1 of X has values that are missing"):
        Standardised.of_numbers(hole, y, X)
    with pytest.raises(DataError, match="column 1 of X_test"):
        Standardised.of_numbers(X, y, hole)
    with pytest.raises(DataError, match="target has values that are missing"):
        Standardised.of_numbers(X, hole[:, 1], X)
    with pytest.raises(DataError, match="all 2 columns of X are constant"):
        Standardised.of_numbers(np.ones_like(X), y, X)
    with pytest.raises(DataError, match="target is 2 in all 60 rows"):
        Standardised.of_numbers(X, np.full(60, 2.0), X)
    with pytest.raises(DataError, match=r"expected X of .*\(60, 2\), \(59,\) and \(60, 2\)"):
        Standardised.of_numbers(X, y[1:], X)
    with pytest.raises(DataError, match="at least 2 rows"):
        Standardised.of_numbers(X[:1], y[:1], X)
