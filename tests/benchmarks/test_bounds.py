"""The bound that learners reach, and the dense likelihood, optimum and predictions beside it."""

import numpy as np
import typer
from typer.testing import CliRunner

from benchmarks import bounds
from benchmarks.dense_optimum import DenseAdditive
from dsgp import AdditiveGPRegressor
from dsgp.kernels import Matern72


def rows_of(n, n_terms=2, noise=0.1):
    random = np.random.default_rng(1)
    X = random.uniform(-3, 3, (n, n_terms))
    return X, 5.0 + np.sin(2 * X).sum(axis=1) + noise**0.5 * random.standard_normal(n)


def test_the_bound_reached_is_that_at_the_hyperparameters():
    """That EM reaches it too, in far more iterations, is in tests/learning."""
    X, y = rows_of(25)
    vbem = bounds.reached("vbem", X, y, 100)
    assert vbem.converged
    assert abs(bounds.bound_at(X, y, np.array(vbem.logs)) - vbem.bound) < 1e-6
    assert vbem.bound < vbem.log_likelihood


def test_the_command_prints_a_table(tmp_path):
    app = typer.Typer()
    app.command()(bounds.main)
    out = tmp_path / "bounds.json"
    arguments = ["--rows", "30", "--max-iter", "2", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "| 30 | em (not converged) |" in result.stdout
    assert out.exists()


def test_the_dense_gradient_optimum_and_predictions(tmp_path):
    """Finite differences; an optimum that is flat, and that a run again takes from its file."""
    X, y = rows_of(300)
    kept = tmp_path / "dense.jsonl"
    model, logs = DenseAdditive(X, y, kept), np.log([1.0, 0.8, 1.2, 0.7, 0.1])
    gradient = model.evaluate(logs)[1]
    for k in range(5):
        step = 1e-4 * np.eye(5)[k]
        slope = (model.log_likelihood(logs + step) - model.log_likelihood(logs - step)) / 2e-4
        assert abs(slope - gradient[k]) < 1e-4
    best, converged = model.maximise(logs)
    assert converged
    assert np.abs(model.evaluate(best)[1]).max() < 0.02
    again = DenseAdditive(X, y, kept)
    assert again.n_evaluations == model.n_evaluations
    np.testing.assert_array_equal(again.maximise(logs)[0], best)
    assert again.n_evaluations == model.n_evaluations

    lengthscale, variance = np.exp(best[:2]), np.exp(best[2:4])
    terms = {f"x{d}": Matern72(lengthscale[d], variance[d]) for d in range(2)}
    noise = float(np.exp(best[-1]))
    known = AdditiveGPRegressor(terms=terms, noise_variance=noise, learner=None).fit(X, y)
    new = np.array([[0.3, -2.0], [2.9, 9.0], [-4.0, 0.0]])
    mean, std = known.predict(new, return_std=True, include_noise=True)
    expected, deviation = model.predict(best, new)
    np.testing.assert_allclose(mean, expected, atol=1e-5)
    np.testing.assert_allclose(std, deviation, rtol=1e-6)
