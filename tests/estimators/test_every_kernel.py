"""Each public kernel with each solver, learner, sampler and model: it works, or is refused."""

import numpy as np
import pytest
import xarray as xr

import dsgp.kernels
from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    GridGP,
    ProjectionPursuitGPRegressor,
    SmoothingSpline,
)
from dsgp.errors import ParameterError
from dsgp.kernels import (
    Constant,
    Custom,
    DampedOscillation,
    Independent,
    Kernel,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Matern72,
    Periodic,
    QuasiPeriodic,
    RationalQuadratic,
    SquaredExponential,
    Wiener,
)
from dsgp.terms import MarkovCells

pytestmark = pytest.mark.filterwarnings("ignore")


class Bump:
    """A user's own covariance."""

    def covariance(self, x, y):
        return np.exp(-((x[:, None] - y[None, :]) ** 2))


# With all parameters, which `free` takes away where they are to be learned.
KERNELS = {
    "Matern12": Matern12(1.5, 0.8),
    "Matern32": Matern32(1.5, 0.8),
    "Matern52": Matern52(1.5, 0.8),
    "Matern72": Matern72(1.5, 0.8),
    "SquaredExponential": SquaredExponential(1.2, 0.8),
    "SquaredExponential in states": SquaredExponential(1.2, 0.8, error=1e-2),
    "RationalQuadratic": RationalQuadratic(1.2, 0.8, 0.7),
    "Periodic": Periodic(2.0, 0.9, 0.8),
    "QuasiPeriodic": QuasiPeriodic(2.0, 0.9, 0.8, 3.0),
    "DampedOscillation": DampedOscillation(2.0, 3.0, 0.8),
    "Sum": Matern52(1.5, 0.4) + DampedOscillation(2.0, 3.0, 0.4),
    "Product": Matern32(4.0, 0.8) * Periodic(2.0, 0.9),
    "Custom": Custom(Bump(), 0.8),
    "Constant": Constant(0.8),
}
# Kernels that a function of a column cannot have, and the reason in the message.
REFUSED = {
    "Wiener": (
        Wiener(2, 1.0, 0.8),
        "no lengthscale, by which a model chooses the nodes.*SmoothingSpline",
    ),
    "Independent": (Independent(0.8), r"Independent is the kernel of Levels\(\)"),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)
BESIDE, NOISE = Matern52(3.0, 0.5), 0.05
CHAIN = {"n_draws": 3, "n_warmup": 1, "n_chains": 1, "random_state": 0, "learner_max_iter": 1}


def rows(n=16):
    random = np.random.default_rng(3)
    X = random.uniform(0, 6, (n, 2))
    return X, np.sin(np.pi * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * random.standard_normal(n)


def free(kernel):
    """The kernel with parameters to be learned."""
    parts = getattr(kernel, "parts", None)
    if parts is not None:
        made = [free(part) for part in parts]
        return made[0] + made[1] if type(kernel).__name__ == "Sum" else made[0] * made[1]
    settings = {
        name: getattr(kernel, name) for name in ("period", "error") if hasattr(kernel, name)
    }
    if isinstance(kernel, Custom):
        return Custom(kernel.function)
    return type(kernel)(**{key: value for key, value in settings.items() if value is not None})


def test_every_public_kernel_is_here():
    named = [getattr(dsgp.kernels, name) for name in dsgp.kernels.__all__]
    public = {kind for kind in named if isinstance(kind, type) and issubclass(kind, Kernel)}
    # Interactions, of two columns, are in test_interactions.
    bases = {Kernel, Matern, dsgp.kernels.Stationary, dsgp.kernels.CentredProduct}
    here = [*KERNELS.values(), *(kernel for kernel, _ in REFUSED.values())]
    assert public - bases == {type(kernel) for kernel in here}


def covariance_of(kernel, x, y):
    if kernel.error is None:
        return kernel.covariance(x, y)
    return MarkovCells(np.unique(x)).prior(kernel, x, y)  # of the form that is cut


def dense(kernel, X, y, new):
    """Mean and standard deviation of f at new rows, a constant with a flat prior beside it."""

    def total(A, B):
        return covariance_of(kernel, A[:, 0], B[:, 0]) + BESIDE.covariance(A[:, 1], B[:, 1])

    inverse = np.linalg.inv(total(X, X) + NOISE * np.eye(len(X)))
    ones, cross = np.ones(len(X)), total(new, X)
    precision = ones @ inverse @ ones
    level = ones @ inverse @ y / precision
    mean = level + cross @ inverse @ (y - level)
    prior = np.diag(total(new, new))
    unknown = (1 - cross @ inverse @ ones) ** 2 / precision
    return mean, np.sqrt(prior - np.sum(cross @ inverse * cross, axis=1) + unknown)


@pytest.mark.parametrize("solver", ["multigrid", "cg", "backfitting"])
@every_kernel
def test_solvers_give_the_dense_posterior_near_and_far(name, solver):
    X, y = rows()
    kernel = KERNELS[name]
    model = AdditiveGPRegressor(
        terms={"x0": kernel, "x1": BESIDE},
        noise_variance=NOISE,
        learner=None,
        solver=solver,
        tol=1e-6,
        max_iter=5000,
    ).fit(X, y)
    assert model.converged_
    new = np.vstack([X[:3], [[3.3, 1.0], [-1.5, 7.0], [30.0, -40.0], [1e5, 1e5]]])
    mean, std = model.predict(new, return_std=True)
    expected, deviation = dense(kernel, X, y, new)
    np.testing.assert_allclose(mean, expected, atol=1e-5)
    np.testing.assert_allclose(std, deviation, rtol=1e-5)


@every_kernel
def test_far_away_the_prior_returns(name):
    """But a season goes on, and a constant stays; splines and their trends are in test_spline."""
    X, y = rows()
    kernel = KERNELS[name]
    model = AdditiveGPRegressor(
        terms={"x0": kernel, "x1": BESIDE}, noise_variance=NOISE, learner=None
    ).fit(X, y)
    along = X[:, 0].max() + np.array([0.0, 0.5, 1.0, 2.0, 6.0, 1e3, 1e5])
    out = model.components(np.column_stack([along, np.full(7, 3.0)]))
    mean, std = out["mean"].to_numpy()[:, 0], out["std"].to_numpy()[:, 0]
    if name == "Constant":
        np.testing.assert_allclose(mean, mean[0], atol=1e-12)
        return
    if name == "Periodic":
        turns = model.components(np.array([[along[0] + 2.0 * 1e6, 3.0]]))
        np.testing.assert_allclose(turns["mean"].to_numpy()[0, 0], mean[0], atol=1e-6)
        return
    # Of the prior, less the component's mean over the rows.
    np.testing.assert_allclose(mean[-2], mean[-1], rtol=1e-3, atol=1e-6)
    assert std[-1] == pytest.approx(std[-2], rel=1e-3)
    assert std[-1] > std[0]
    assert std[-1] >= std.max() * (1 - 1e-9)
    if name.startswith("Matern"):
        assert (np.diff(std) > -1e-12).all()


@pytest.mark.parametrize("learner", ["marginal", "vbem", "em"])
@every_kernel
def test_learners(name, learner):
    X, y = rows()
    X = X[:, :1]
    options = {"learner_max_iter": 2} if learner == "em" else {}
    model = AdditiveGPRegressor(terms={"x0": free(KERNELS[name])}, learner=learner, **options)
    if learner == "em" and not isinstance(KERNELS[name], Matern):
        with pytest.raises(ParameterError, match=r'the term \'x0.*use learner="vbem"'):
            model.fit(X, y)
        return
    model.fit(X, y)
    kernel = next(iter(model.kernels_.values()))
    assert all(np.isfinite(kernel.value(each)) for each in kernel.parameters)
    # Better than what it began at: the variance of a model without any function.
    assert model.log_marginal_likelihood_ > -0.5 * len(y) * (np.log(2 * np.pi * y.var()) + 1) - 2
    assert np.isfinite(model.predict(X, return_std=True)).all()


@pytest.mark.parametrize("method", ["gibbs", "plain-gibbs", "collapsed"])
@every_kernel
def test_samplers(name, method):
    X, y = rows()
    X = X[:, :1]
    model = AdditiveGPRegressor(terms={"x0": free(KERNELS[name])}, method=method, **CHAIN)
    if method == "plain-gibbs" and not isinstance(KERNELS[name], Matern):
        with pytest.raises(ParameterError, match=r'the term \'x0.*use method="gibbs"'):
            model.fit(X, y)
        return
    model.fit(X, y)
    for values in model.draws_.data_vars.values():
        assert np.isfinite(values).all()
    assert np.isfinite(model.predict(X, return_std=True)).all()


@every_kernel
def test_models_with_other_likelihoods(name):
    X, y = rows()
    terms = {"x0": free(KERNELS[name])}
    counts = GeneralizedAdditiveGP("poisson", terms=terms).fit(X[:, :1], np.floor(np.exp(y)))
    assert (counts.predict(X[:, :1]) > 0).all()


OF_A_GRID = {
    **dict.fromkeys(("Matern12", "Matern32", "Matern52", "Matern72", "SquaredExponential")),
    **dict.fromkeys(("SquaredExponential in states", "Periodic", "DampedOscillation")),
    "RationalQuadratic": "lengthscale and a variance only",
}


@pytest.mark.parametrize("gaps", [False, True])
@every_kernel
def test_grids(name, gaps):
    values = np.random.default_rng(0).standard_normal((5, 7)).cumsum(axis=1)
    if gaps:
        values[2, 3] = np.nan
    field = xr.DataArray(values, coords={"a": np.arange(5.0), "x0": 0.9 * np.arange(7)})
    model = GridGP({"x0": free(KERNELS[name])})
    reason = OF_A_GRID.get(name, "not a kernel for grids")
    if reason is not None:
        with pytest.raises(ParameterError, match=f"dim 'x0' has .*{reason}"):
            model.fit(field)
        return
    assert np.isfinite(model.fit(field).predict()).all()


@every_kernel
def test_projections(name):
    X, y = rows()
    model = ProjectionPursuitGPRegressor(
        n_projections=1, kernel=free(KERNELS[name]), random_state=0
    )
    if KERNELS[name].order < 2 or not isinstance(KERNELS[name], Matern):
        with pytest.raises(ParameterError, match=r"Matern32\(\) or|Matern32\(\), Matern52\(\)"):
            model.fit(X, y)
        return
    assert np.isfinite(model.fit(X, y).predict(X)).all()


@pytest.mark.parametrize("name", REFUSED)
def test_kernels_that_make_no_function_of_a_column_say_why(name):
    X, y = rows()
    kernel, reason = REFUSED[name]
    makers = [
        lambda: AdditiveGPRegressor(terms={"x0": kernel}).fit(X, y),
        lambda: AdditiveGPRegressor(terms={"x0": kernel}, learner="vbem").fit(X, y),
        lambda: AdditiveGPRegressor(terms={"x0": kernel}, method="gibbs").fit(X, y),
        lambda: GeneralizedAdditiveGP("poisson", terms={"x0": kernel}).fit(X, np.round(y**2)),
        lambda: AdditiveGPClassifier(terms={"x0": kernel}).fit(X, y > 0.5),
    ]
    for make in makers:
        with pytest.raises(ParameterError, match=reason):
            make()
    field = xr.DataArray(np.eye(4), coords={"a": np.arange(4.0), "x0": np.arange(4.0)})
    with pytest.raises(ParameterError, match=r"dim 'x0' has .*not a kernel for grids"):
        GridGP({"x0": kernel}).fit(field)
    with pytest.raises(ParameterError, match=r"Matern32\(\), .*got "):
        ProjectionPursuitGPRegressor(kernel=kernel).fit(X, y)


def test_a_wiener_process_is_what_a_smoothing_spline_fits():
    x, y = rows()[0][:, 0], rows()[1]
    x = x - x.min()
    smoothing, noise = 0.3, 0.2
    model = SmoothingSpline(smoothing=smoothing).fit(x, y)
    kernel = Wiener(2, 1.0, noise / smoothing, origin=0.0)
    inverse = np.linalg.inv(kernel.covariance(x) + noise * np.eye(len(x)))
    basis = np.column_stack([np.ones_like(x), x])
    line = np.linalg.solve(basis.T @ inverse @ basis, basis.T @ inverse @ y)
    new = np.array([0.1, 2.0, 5.5, 40.0])
    expected = line[0] + line[1] * new + kernel.covariance(new, x) @ inverse @ (y - basis @ line)
    np.testing.assert_allclose(model.predict(new), expected, atol=1e-6)
