"""The models of ``dsgp fit``: the options that each of them has, and their making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from dsgp import kernels
from dsgp.cli.choices import Kernel, Learner, Method, Model, Transform
from dsgp.errors import ParameterError
from dsgp.estimators import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    ProjectionPursuitGPRegressor,
)
from dsgp.likelihoods import Bernoulli, Binomial, Likelihood, Ordered, by_name
from dsgp.terms import Default, Term, parse_term

Estimator = (
    AdditiveGPClassifier
    | AdditiveGPRegressor
    | GeneralizedAdditiveGP
    | ProjectionPursuitGPRegressor
)


BY_INPUT = tuple(model for model in Model if model is not Model.pursuit)
GENERALIZED = tuple(model for model in BY_INPUT if model not in (Model.additive, Model.classifier))
# Which models have an option of ``fit``; those that are not here are of all.
OWNERS: dict[str, tuple[Model, ...]] = {
    **dict.fromkeys(
        (
            *("lengthscale", "variance"),
            *("learner", "learner_max_iter", "missing", "missing_value", "interactions"),
        ),
        BY_INPUT,
    ),
    **dict.fromkeys(("noise_variance", "transform"), (Model.additive, Model.pursuit)),
    "newton_max_iter": (Model.classifier, *GENERALIZED),
    "link": (Model.classifier, Model.bernoulli, Model.binomial, Model.ordered),
    "class_weight": (Model.classifier,),
    **dict.fromkeys(("remainder", "noise_terms"), (Model.additive,)),
    "projections": (Model.additive, Model.pursuit),
    "multi_class": (Model.classifier,),
    "exposure": (Model.poisson, Model.negative_binomial, Model.gamma),
    "offset": GENERALIZED,
    "trials": (Model.binomial,),
    **dict.fromkeys(
        (
            "no_relevance",
            "starts",
        ),
        (Model.pursuit,),
    ),
    **dict.fromkeys(
        ("method", "draws", "warmup", "chains", "seed"), (Model.additive, Model.pursuit)
    ),
}
_LINKED: dict[Model, type[Likelihood]] = {
    Model.bernoulli: Bernoulli,
    Model.binomial: Binomial,
    Model.ordered: Ordered,
}


def require_own_options(context: typer.Context, model: Model, learner: Learner) -> None:
    """Refuse options that only other models have, rather than leave them aside."""
    for name, owners in OWNERS.items():
        source = context.get_parameter_source(name)
        if model not in owners and source is not None and source.name != "DEFAULT":
            raise ParameterError(
                f"--{name.replace('_', '-')} is an option of --model {_either(owners)}, and this "
                f"is --model {model}; leave it out"
            )
    require_method(context.params["method"], model)
    if learner in (Learner.vbem, Learner.em) and model is not Model.additive:
        raise ParameterError(
            f"--learner {learner} is for --model additive, got --model {model}; use "
            "marginal, independent or none"
        )
    if learner is Learner.independent and model is Model.additive:
        raise ParameterError(
            "--learner independent is for models with a likelihood other than the Gaussian, got "
            "--model additive; use marginal, vbem, em or none"
        )


def require_method(method: Method | None, model: Model) -> None:
    """Refuse a method that only the other model has."""
    additive = (Method.gibbs, Method.plain_gibbs, Method.collapsed)
    if model is Model.additive and method not in (None, *additive):
        raise ParameterError(
            f"--method {method} is for --model pursuit, got --model additive; use gibbs, "
            "plain-gibbs or collapsed, or leave it out"
        )
    if model is Model.pursuit and method in (Method.plain_gibbs, Method.collapsed):
        raise ParameterError(
            f"--method {method} is for --model additive, got --model pursuit; use refit, "
            "greedy or gibbs"
        )


def _either(models: tuple[Model, ...]) -> str:
    *others, last = models
    return f"{', '.join(others)} or {last}" if others else last


def estimator_of(model: Model, options: Mapping[str, Any]) -> Estimator:
    """Return the unfitted model that the options of ``fit`` ask for.

    Parameters
    ----------
    model : Model
    options : mapping
        Options by their names as parameters of ``fit``, choices as text; those of other models are
        ignored.
    """
    shared: dict[str, Any] = {
        "solver": str(options["solver"]),
        "bins": _bins(options["bins"]),
        "tol": options["tol"],
        "max_iter": options["max_iter"],
        "verbose": True,
    }
    default = Kernel.matern32 if model is Model.classifier else Kernel.matern52
    kernel_class = getattr(kernels, (options["kernel"] or default).capitalize())
    transform = None if options["transform"] == Transform.none else str(options["transform"])
    if model is Model.pursuit:
        return ProjectionPursuitGPRegressor(
            kernel_class(),
            terms=_terms(options["term"] or ()),
            target_transform=transform,
            noise_variance=options["noise_variance"],
            n_projections=_projections(options["projections"] or "auto"),
            method=str(options["method"] or Method.refit),
            relevance=not options["no_relevance"],
            n_starts=options["starts"],
            **_drawn(options),
            **shared,
        )
    learner = str(options["learner"])
    shared["learner"] = None if learner == Learner.none else learner
    shared["missing"] = str(options["missing"])
    shared["missing_values"] = tuple(options["missing_value"] or ())
    if options["learner_max_iter"] is not None:
        shared["learner_max_iter"] = options["learner_max_iter"]
    shared["terms"] = _terms(options["term"] or ())
    if options["interactions"]:
        shared["interactions"] = _interactions(options["interactions"])
    kernel = kernel_class(options["lengthscale"], options["variance"])
    if model is Model.additive:
        if options["method"] is not None:
            shared |= {"method": str(options["method"]), **_drawn(options)}
        if options["projections"] is not None:
            shared["projections"] = _projections(options["projections"])
        if options["remainder"]:
            shared["remainder"] = _remainder(options["remainder"])
        if options["noise_terms"]:
            shared["noise_terms"] = _noise_terms(options["noise_terms"])
        return AdditiveGPRegressor(
            kernel, noise_variance=options["noise_variance"], target_transform=transform, **shared
        )
    shared["newton_max_iter"] = options["newton_max_iter"]
    link = str(options["link"])
    if model is Model.classifier:
        weight = options["class_weight"]
        return AdditiveGPClassifier(
            kernel,
            link=link,
            multi_class=str(options["multi_class"]),
            class_weight=None if weight is None else str(weight),
            **shared,
        )
    likelihood = (
        _LINKED[model](link=link)  # type: ignore[call-arg]
        if model in _LINKED
        else by_name(model.replace("-", "_"))
    )
    return GeneralizedAdditiveGP(likelihood, kernel, **shared)


def _drawn(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of models that may be draws."""
    return {
        "n_draws": options["draws"],
        "n_warmup": options["warmup"],
        "n_chains": options["chains"],
        "random_state": options["seed"],
    }


def _terms(texts: Sequence[str]) -> dict[str, list[Term]] | None:
    """Return the terms of single columns."""
    terms: dict[str, list[Term]] = {}
    for text in texts:
        try:
            term = parse_term(text)
        except ParameterError as error:
            raise ParameterError(f"--term: {error}") from error
        terms.setdefault(str(term.column), []).append(term)
    return terms or None


def _interactions(texts: Sequence[str]) -> Any:
    """Return "auto", a number, or pairs of names."""
    if len(texts) == 1 and texts[0] == "auto":
        return "auto"
    if len(texts) == 1 and texts[0].isdecimal():
        return int(texts[0])
    pairs = [tuple(part.strip() for part in text.split(":")) for text in texts]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ParameterError(
            "--interactions must be auto, a number, or pairs of inputs such as 'hour:day' (repeat "
            f"the option for each pair), got {' '.join(map(repr, texts))}"
        )
    return pairs


def _remainder(texts: Sequence[str]) -> Any:
    """Return True, "auto" or the names of columns."""
    if list(texts) == ["auto"]:
        return "auto"
    return True if list(texts) == ["all"] else list(texts)


def _noise_terms(texts: Sequence[str]) -> Any:
    """Return True, or terms: the default term for a column that is named."""
    if list(texts) == ["all"]:
        return True
    try:
        return [parse_term(text) if "(" in text else Default(text) for text in texts]
    except ParameterError as error:
        raise ParameterError(f"--noise-terms: {error}") from error


def _projections(text: str) -> str | int:
    if text == "auto":
        return text
    if text.isdecimal():
        return int(text)
    raise ParameterError(f"--projections must be auto or a number, got {text!r}")


def _bins(text: str) -> str | int | None:
    if text == "auto":
        return text
    if text == "none":
        return None
    if text.isdecimal():
        return int(text)
    raise ParameterError(f"--bins must be auto, none or a number, got {text!r}")
