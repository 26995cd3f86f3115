"""Who is timed along one axis, on which data, and the proof that all solve the same problem.

Every contender holds its data ready and offers ``calls()``: what it can compute, by quantity. The
hyperparameters stay fixed, but every call does all the work that a new value of them would need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from sklearn.gaussian_process.kernels import Matern as DenseMatern

from dsgp import kernels
from dsgp.terms import Axis, Observations

try:
    import spleaf.cov
    import spleaf.term
except ImportError:
    spleaf = None

try:
    import celerite2
    import celerite2.terms
except ImportError:
    celerite2 = None

try:
    import jax

    jax.config.update("jax_enable_x64", True)  # before celerite2 registers its operations
    import celerite2.jax
    import celerite2.jax.terms
except ImportError:
    jax = None

Floats = NDArray[np.float64]

VARIANCE, LENGTHSCALE, NOISE_VARIANCE = 1.0, 1.0, 0.1
QUANTITIES = ("likelihood", "gradient", "moments")


class Unavailable(Exception):
    """A contender, or a quantity of it, that cannot be timed here; the message says why."""


def irregular_series(n: int, seed: int = 1) -> tuple[Floats, Floats]:
    """Sorted inputs with exponential gaps of mean 0.1, and a noisy Matérn-3/2-like target.

    The path is white noise shaped in the frequency domain by the square root of the spectral
    density of Matérn 3/2, on a fine grid, and interpolated.
    """
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.exponential(0.1, n))
    spacing = 0.02
    size = 2 ** math.ceil(math.log2(x[-1] / spacing + 64 / spacing))
    frequency = 2 * math.pi * np.fft.rfftfreq(size, spacing)
    noise = rng.standard_normal((2, len(frequency)))
    path = np.fft.irfft((noise[0] + 1j * noise[1]) / (3 / LENGTHSCALE**2 + frequency**2), size)
    path *= math.sqrt(VARIANCE) / path.std()
    y = np.interp(x, spacing * np.arange(size), path)
    return x, y + math.sqrt(NOISE_VARIANCE) * rng.standard_normal(n)


# ---------------------------------------------------------------------- contenders


class Contender:
    """One library with one kernel on one data set."""

    smoothness: float
    tolerance = 1e-8  # relative, of the log likelihood against the dense one
    lacks: dict[str, str]  # why a quantity is missing

    def calls(self) -> dict[str, Callable[[], Any]]:
        """Return what it computes, by quantity.

        ``likelihood`` returns the log likelihood; ``gradient`` the same and its derivatives by the
        logs of variance, lengthscale and noise variance; ``moments`` the posterior mean and
        variance at the inputs. One function under two names does both in one call.
        """
        raise NotImplementedError


class Dsgp(Contender):
    def __init__(self, name: str, x: Floats, y: Floats) -> None:
        self.kernel = getattr(kernels, name)(lengthscale=LENGTHSCALE, variance=VARIANCE)
        self.smoothness = self.kernel.smoothness
        self.lacks = {}
        self.axis = Axis(x)
        self.seen = Observations(y, np.full(len(x), 1 / NOISE_VARIANCE))

    def calls(self) -> dict[str, Callable[[], Any]]:
        return {"likelihood": self.likelihood, "gradient": self.all, "moments": self.all}

    def likelihood(self) -> float:
        return self.axis.log_marginal_likelihood(self.kernel, self.seen)

    def all(self) -> tuple[float, Floats, Floats, Floats]:
        posterior = self.axis.posterior(self.kernel, self.seen)
        e = posterior.evidence
        gradient = np.array([e.by_log["variance"], e.by_log["lengthscale"], e.by_log_noise])
        return e.value, gradient, posterior.mean, posterior.variance


class Spleaf(Contender):
    def __init__(self, name: str, x: Floats, y: Floats) -> None:
        if spleaf is None:
            raise Unavailable("spleaf is not installed")
        self.smoothness = {"Matern32": 1.5, "Matern52": 2.5}[name]
        self.lacks = {"moments": "its variance takes O(N²)"}
        kernel = getattr(spleaf.term, f"{name}Kernel")
        self.y = y
        self.covariance = spleaf.cov.Cov(
            x,
            noise=spleaf.term.Jitter(math.sqrt(NOISE_VARIANCE)),
            path=kernel(math.sqrt(VARIANCE), LENGTHSCALE),
        )
        self.parameters = ["path.sig", "path.rho", "noise.sig"]
        self.values = self.covariance.get_param(self.parameters)

    def calls(self) -> dict[str, Callable[[], Any]]:
        return {"likelihood": self.likelihood, "gradient": self.likelihood_and_gradient}

    def likelihood(self) -> float:
        # Setting the parameters, even to the same values, makes spleaf factorise again.
        self.covariance.set_param(self.values, self.parameters)
        with np.errstate(invalid="ignore"):  # its Matérn 5/2 is NaN on long series
            return self.covariance.loglike(self.y)

    def likelihood_and_gradient(self) -> tuple[float, Floats]:
        value = self.likelihood()
        _, slope = self.covariance.loglike_grad(self.parameters)
        # Two of the parameters are standard deviations, half the logs of the variances.
        return value, slope * self.values * np.array([0.5, 1.0, 0.5])


class Celerite2(Contender):
    """Its Matérn 3/2 is the limit ε → 0 of a pair of exponentials, taken at ε = 10⁻⁴."""

    smoothness = 1.5
    epsilon = 1e-4
    tolerance = 1e-5

    def __init__(self, x: Floats, y: Floats) -> None:
        if celerite2 is None:
            raise Unavailable("celerite2 is not installed")
        self.lacks = {"moments": "its variance forms an N × N matrix"}
        self.x, self.y = x, y
        self.noise = np.full(len(x), NOISE_VARIANCE)
        kernel = celerite2.terms.Matern32Term(
            sigma=math.sqrt(VARIANCE), rho=LENGTHSCALE, eps=self.epsilon
        )
        self.process = celerite2.GaussianProcess(kernel, mean=0.0)
        if jax is None:
            self.lacks["gradient"] = "its gradient needs jax, which is not installed"
        else:
            logs = np.log([VARIANCE, LENGTHSCALE, NOISE_VARIANCE])
            self.logs = jax.numpy.asarray(logs)
            self.compiled = jax.jit(jax.value_and_grad(self._traced))

    def calls(self) -> dict[str, Callable[[], Any]]:
        calls: dict[str, Callable[[], Any]] = {"likelihood": self.likelihood}
        if jax is not None:
            calls["gradient"] = self.likelihood_and_gradient
        return calls

    def likelihood(self) -> float:
        self.process.compute(self.x, diag=self.noise, check_sorted=False)
        return self.process.log_likelihood(self.y)

    def likelihood_and_gradient(self) -> tuple[float, Floats]:
        value, gradient = self.compiled(self.logs, self.x, self.y)
        return float(value), np.asarray(gradient)

    def _traced(self, logs: Any, x: Any, y: Any) -> Any:
        variance, lengthscale, noise_variance = jax.numpy.exp(logs)
        kernel = celerite2.jax.terms.Matern32Term(
            sigma=jax.numpy.sqrt(variance), rho=lengthscale, eps=self.epsilon
        )
        process = celerite2.jax.GaussianProcess(kernel, mean=0.0)
        process.compute(x, diag=noise_variance * jax.numpy.ones_like(x), check_sorted=False)
        return process.log_likelihood(y)


CONTENDERS: dict[str, Callable[[Floats, Floats], Contender]] = {
    "dsgp Matern12": partial(Dsgp, "Matern12"),
    "dsgp Matern32": partial(Dsgp, "Matern32"),
    "dsgp Matern52": partial(Dsgp, "Matern52"),
    "dsgp Matern72": partial(Dsgp, "Matern72"),
    "spleaf Matern32": partial(Spleaf, "Matern32"),
    "spleaf Matern52": partial(Spleaf, "Matern52"),
    "celerite2 Matern32": Celerite2,
}


# ---------------------------------------------------------------------- agreement


@dataclass(frozen=True)
class Dense:
    """What scikit-learn's dense algebra says of the same problem."""

    value: float
    gradient: Floats
    mean: Floats
    variance: Floats

    @classmethod
    def of(cls, smoothness: float, x: Floats, y: Floats) -> Dense:
        path = ConstantKernel(VARIANCE) * DenseMatern(LENGTHSCALE, nu=smoothness)
        noisy = GaussianProcessRegressor(
            path + WhiteKernel(NOISE_VARIANCE), alpha=0.0, optimizer=None
        )
        noisy.fit(x[:, None], y)
        value, gradient = noisy.log_marginal_likelihood(noisy.kernel_.theta, eval_gradient=True)
        free = GaussianProcessRegressor(path, alpha=NOISE_VARIANCE, optimizer=None)
        mean, deviation = free.fit(x[:, None], y).predict(x[:, None], return_std=True)
        return cls(value, gradient, mean, deviation**2)


def check_agreement(n: int = 1000, names: tuple[str, ...] = tuple(CONTENDERS)) -> dict[str, float]:
    """Compare all that will be timed with dense algebra at a size where that is possible.

    Returns
    -------
    dict of str to float
        Relative difference of the log likelihood, for each contender that is installed.

    Raises
    ------
    AssertionError
        If a contender computes something else.
    """
    x, y = irregular_series(n)
    dense: dict[float, Dense] = {}
    differences = {}
    for name in names:
        try:
            contender = CONTENDERS[name](x, y)
        except Unavailable:
            continue
        if contender.smoothness not in dense:
            dense[contender.smoothness] = Dense.of(contender.smoothness, x, y)
        expected = dense[contender.smoothness]
        calls = contender.calls()
        difference = abs(calls["likelihood"]() / expected.value - 1)
        if not difference <= contender.tolerance:
            raise AssertionError(f"{name}: log likelihood is off by {difference:.1e} (relative)")
        differences[name] = difference
        if "gradient" in calls:
            value, gradient = calls["gradient"]()[:2]
            message = f"{name}: gradient"
            np.testing.assert_allclose(value, expected.value, contender.tolerance, err_msg=message)
            # scikit-learn differentiates Matérn 7/2 numerically.
            np.testing.assert_allclose(gradient, expected.gradient, 1e-3, 1e-3, err_msg=message)
        if "moments" in calls:
            mean, variance = calls["moments"]()[2:]
            np.testing.assert_allclose(mean, expected.mean, 1e-7, 1e-7, err_msg=name)
            np.testing.assert_allclose(variance, expected.variance, 1e-7, err_msg=name)
    return differences
