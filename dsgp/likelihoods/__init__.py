"""Likelihoods of a target given its latent: densities, derivatives, averages, samplers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsgp.errors import ParameterError
from dsgp.likelihoods.base import Likelihood
from dsgp.likelihoods.bernoulli import Bernoulli
from dsgp.likelihoods.binomial import Binomial
from dsgp.likelihoods.counts import NegativeBinomial, Poisson
from dsgp.likelihoods.gaussian import Gaussian
from dsgp.likelihoods.ordered import Ordered
from dsgp.likelihoods.positive import Gamma
from dsgp.likelihoods.robust import StudentT

_CLASSES: dict[str, type[Likelihood]] = {
    kind.name: kind
    for kind in (
        Bernoulli,
        Binomial,
        Poisson,
        NegativeBinomial,
        Gamma,
        Ordered,
        StudentT,
        Gaussian,
    )
}
names: tuple[str, ...] = tuple(_CLASSES)


def by_name(name: str) -> Likelihood:
    """Return the likelihood of that name with its default link and hyperparameters.

    Parameters
    ----------
    name : str
        One of `names`.

    Raises
    ------
    ParameterError
        If there is no such likelihood.

    Examples
    --------
    >>> from dsgp.likelihoods import by_name
    >>> by_name("poisson")
    Poisson()
    """
    if name not in _CLASSES:
        raise ParameterError(
            f"likelihood must be a Likelihood or one of {', '.join(map(repr, names))}, got {name!r}"
        )
    return _CLASSES[name]()


def from_settings(settings: Mapping[str, Any]) -> Likelihood:
    """Return the likelihood that ``to_settings`` described.

    Parameters
    ----------
    settings : mapping
        ``"name"`` and the hyperparameters.

    Raises
    ------
    ParameterError
        If the name is unknown or a hyperparameter is not one of that likelihood.

    Examples
    --------
    >>> from dsgp.likelihoods import Bernoulli, from_settings
    >>> from_settings(Bernoulli("probit").to_settings())
    Bernoulli(link='probit')
    """
    values = dict(settings)
    likelihood = by_name(values.pop("name", None))
    unknown = sorted(set(values) - set(likelihood.to_settings()))
    if unknown:
        raise ParameterError(
            f"{likelihood.name} has no hyperparameters {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(map(repr, sorted(set(likelihood.to_settings()) - {'name'}))) or 'none'}"
        )
    return likelihood.with_parameters(**values)


__all__ = [
    "Bernoulli",
    "Binomial",
    "Gamma",
    "Gaussian",
    "Likelihood",
    "NegativeBinomial",
    "Ordered",
    "Poisson",
    "StudentT",
    "by_name",
    "from_settings",
    "names",
]
