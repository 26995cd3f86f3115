"""Draws of hyperparameters in the user's units, and how well the chains have mixed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dsgp.errors import ConvergenceWarning
from dsgp.kernels import Kernel
from dsgp.sampling.diagnostics import effective_sample_size, split_rhat
from dsgp.terms import Floats

# Largest R-hat and smallest effective number of draws with which chains count as mixed.
RHAT_LIMIT, LEAST_SIZE = 1.05, 50.0
_NOISE = "noise_variance"
# Name of the log likelihood of each method.
LIKELIHOODS = {
    "gibbs": "log_likelihood",
    "plain-gibbs": "log_likelihood",
    "collapsed": "log_marginal_likelihood",
}
_LONG_NAMES = {
    "log_likelihood": "log density of the targets given functions and noise",
    "log_marginal_likelihood": "log density of the targets, functions integrated out",
}


@dataclass(frozen=True)
class DrawnParameters:
    """Draws of the free hyperparameters.

    Attributes
    ----------
    method : {"gibbs", "plain-gibbs", "collapsed"}
    terms, parameters : tuple of str
        Of each number but the last: the name of its term, and that of the kernel's parameter.
    positions : tuple of int
        Of each number but the last: the position of its term.
    values : ndarray of shape (n_chains, n_draws, n_parameters)
        In the user's units; the last number is the noise variance of a row of weight 1.
    fixed_noise : bool
        Whether the noise variance was known.
    log_likelihood : ndarray of shape (n_chains, n_draws)
    n_warmup : int
        Sweeps of each chain before.
    n_nodes : int
        As for ``HyperDraws``.
    left_open : float
        As for ``HyperDraws``.
    """

    method: str
    terms: tuple[str, ...]
    parameters: tuple[str, ...]
    positions: tuple[int, ...]
    values: Floats
    fixed_noise: bool
    log_likelihood: Floats
    n_warmup: int
    n_nodes: int = 0
    left_open: float = 0.0

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return int(self.values.shape[0])

    def __len__(self) -> int:
        return int(self.values.shape[0] * self.values.shape[1])

    def chosen(self, number: int) -> NDArray[np.intp]:
        """Some of the draws, evenly spread over all chains."""
        return np.linspace(0, len(self) - 1, number).round().astype(np.intp)

    def _some(self, number: int) -> Floats:
        return self.values.reshape(len(self), -1)[self.chosen(number)]

    def noise_variances(self, number: int) -> Floats:
        """σ² of some of the draws."""
        return np.ascontiguousarray(self._some(number)[:, -1])

    def kernels(self, kernels: list[Kernel], number: int, r: int) -> list[Kernel]:
        """Kernels of the r-th of some draws, from the initial ones of the chains."""
        values: list[dict[str, float]] = [{} for _ in kernels]
        draw = self._some(number)[r]
        for position, name, value in zip(self.positions, self.parameters, draw[:-1], strict=True):
            values[position][name] = float(value)
        return [
            kernel.with_parameters(**given) for kernel, given in zip(kernels, values, strict=True)
        ]

    # ------------------------------------------------------------------ reports

    def named(self) -> Iterator[tuple[str, Floats]]:
        """What was drawn, by name: chains of shape (n_chains, n_draws)."""
        for k, (term, parameter) in enumerate(zip(self.terms, self.parameters, strict=True)):
            yield f"{term}: {parameter}", self.values[..., k]
        if not self.fixed_noise:
            yield _NOISE, self.values[..., -1]

    def diagnostics(self) -> dict[str, dict[str, float]]:
        """R-hat and effective sample size of every number drawn."""
        return {
            name: {
                "rhat": float(split_rhat(chains)),
                "effective_sample_size": float(effective_sample_size(chains)),
            }
            for name, chains in self.named()
        }

    @property
    def mixed(self) -> bool:
        """Whether the chains agree, on enough draws."""
        return not self._complaints()

    def _complaints(self) -> list[str]:
        """Complaints about the parameters that have mixed worst."""
        numbers = self.diagnostics()
        if not numbers:
            return []
        worst = max(numbers, key=lambda name: _or_infinite(numbers[name]["rhat"]))
        least = min(numbers, key=lambda name: numbers[name]["effective_sample_size"])
        rhat, size = numbers[worst]["rhat"], numbers[least]["effective_sample_size"]
        if math.isnan(rhat):
            return [f"too few draws to judge whether {worst!r} has mixed"]
        complaints = []
        if rhat > RHAT_LIMIT:
            complaints.append(
                f"R-hat of {worst!r} is {rhat:.2f}, above {RHAT_LIMIT:g}: the chains have not "
                "mixed well"
            )
        if size < LEAST_SIZE:
            complaints.append(
                f"the draws of {least!r} are worth {size:.0f} independent ones, fewer than "
                f"{LEAST_SIZE:g}"
            )
        return complaints

    def warn(self, stacklevel: int = 3) -> None:
        """Warn where the chains do not agree; ``stacklevel`` leads to who called ``fit``."""
        for complaint in self._complaints():
            warnings.warn(
                f"{complaint}; raise n_warmup or n_draws", ConvergenceWarning, stacklevel=stacklevel
            )

    def dataset(self) -> xr.Dataset:
        """Return all draws by chain: a variable per parameter, over the terms that have it."""
        variables: dict[str, Any] = {}
        coords: dict[str, Any] = {}
        for parameter in dict.fromkeys(self.parameters):
            which = [k for k, name in enumerate(self.parameters) if name == parameter]
            along = f"{parameter}_term"
            coords[along] = [self.terms[k] for k in which]
            variables[parameter] = (("chain", "draw", along), self.values[..., which])
        attrs = {"long_name": "of a row of weight 1"}
        variables[_NOISE] = (("chain", "draw"), self.values[..., -1], attrs)
        likelihood = LIKELIHOODS[self.method]
        variables[likelihood] = (
            ("chain", "draw"),
            self.log_likelihood,
            {"long_name": _LONG_NAMES[likelihood]},
        )
        numbers = {
            name: np.arange(self.values.shape[k]) for k, name in enumerate(("chain", "draw"))
        }
        return xr.Dataset(variables, coords=numbers | coords)

    def lines(self, n_members: int) -> list[tuple[str, str]]:
        """Lines of a summary."""
        numbers = self.diagnostics()
        lines = [
            (
                "sampling",
                f"{self.method}: {len(self)} draws in {self.n_chains} chains, each after "
                f"{self.n_warmup} sweeps; predictions average {n_members} of them,",
            ),
            ("", "kernels, likelihood and solver are those of the chains' initial values"),
        ]
        if self.method == "collapsed":
            exact = not self.left_open
            lines.append(
                (
                    "evidence",
                    f"at {self.n_nodes} nodes of all terms: "
                    + ("exact, every distinct value is a node" if exact else "an approximation; ")
                    + (
                        ""
                        if exact
                        else "the prior variance that they do not represent adds at most "
                    )
                    + ("" if exact else f"{self.left_open:.2g} of the noise variance"),
                )
            )
        if numbers:
            worst = max(numbers, key=lambda name: _or_infinite(numbers[name]["rhat"]))
            least = min(numbers, key=lambda name: numbers[name]["effective_sample_size"])
            lines += [
                ("R-hat", f"at most {numbers[worst]['rhat']:.3f} ({worst})"),
                (
                    "effective draws",
                    f"at least {numbers[least]['effective_sample_size']:.0f} ({least})",
                ),
            ]
        for position, (name, chains) in enumerate(self.named()):
            low, middle, high = np.quantile(chains, [0.05, 0.5, 0.95])
            interval = f"{name} {middle:.4g} ({low:.4g} to {high:.4g})"
            lines.append(("" if position else "median (90 %)", interval))
        return lines

    # ------------------------------------------------------------------ storage

    def stored(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return values that JSON can hold, and arrays, that ``restored`` takes."""
        numbers = {
            "method": self.method,
            "terms": list(self.terms),
            "parameters": list(self.parameters),
            "positions": list(self.positions),
            "fixed_noise": self.fixed_noise,
            "n_warmup": self.n_warmup,
            "n_nodes": self.n_nodes,
            "left_open": self.left_open,
        }
        return numbers, {"values": self.values, "log_likelihood": self.log_likelihood}

    @classmethod
    def restored(cls, numbers: dict[str, Any], arrays: dict[str, Any]) -> DrawnParameters:
        """Undo ``stored``."""
        lists = {name: tuple(numbers[name]) for name in ("terms", "parameters", "positions")}
        kept = {name: arrays[name] for name in ("values", "log_likelihood")}
        return cls(**{**numbers, **lists, **kept})


def _or_infinite(rhat: float) -> float:
    return math.inf if math.isnan(rhat) else rhat
