"""A fitted additive model, in its columns or in others, as settings and arrays, and back.

Parameters of estimators are values that JSON can hold, kernels, terms, likelihoods, transforms, or
mappings and lists of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsgp import kernels
from dsgp.additive import BinEquations, Equations, RowEquations, TwoWayTables
from dsgp.additive.tables import pairs_of
from dsgp.errors import ParameterError, StorageError
from dsgp.kernels import Kernel
from dsgp.likelihoods import Likelihood, from_settings
from dsgp.models.additive import AdditiveModel
from dsgp.models.base import FittedModel
from dsgp.models.columns import Columns
from dsgp.models.mixture import MixtureModel
from dsgp.models.projected import ProjectedModel
from dsgp.models.pursuit.projections import ARRAYS, Projections
from dsgp.models.remainder import FittedRemainder, RemainderModel
from dsgp.models.sampled import DrawsModel
from dsgp.models.store_schema import check_table
from dsgp.models.term import FittedTerm
from dsgp.priors import HyperPriors
from dsgp.remainder import Remainder
from dsgp.rows.sources import kind_from_settings
from dsgp.rows.table import Layout, RowTable
from dsgp.terms import BoundTerm, Floats, Term
from dsgp.terms.spec import from_settings as term_from_settings
from dsgp.transforms import Transform
from dsgp.transforms import from_settings as transform_from_settings

# Numbers of the equations, beside their arrays.
EQUATION_NUMBERS = ("quadratic", "n_rows", "log_weight")
# More of these, which stores of earlier versions lack.
EQUATION_TOTALS = ("total_weight", "total_information")
# Numbers of a term, beside its kernel and its arrays.
TERM_NUMBERS = ("centre", "explained_variance", "effective_dof")


def classes(settings: dict[str, Any]) -> NDArray[Any]:
    """Return the labels of a classifier."""
    stored = settings["classes"]
    dtype = np.dtype(stored["dtype"])
    if dtype.kind not in "biufUO":
        raise StorageError(f"the store has labels of type {dtype}, which no classifier has")
    return np.array(stored["labels"], dtype=dtype)


def described(
    parameters: Mapping[str, Any],
    columns: Columns,
    fitted: Mapping[str, Any],
    latent: FittedModel,
    relevance: Floats | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings and arrays of a fitted model of a table.

    Parameters
    ----------
    parameters : mapping
        Of the estimator.
    columns : Columns
    fitted : mapping
        What is reported of the fit, by name; values that JSON can hold.
    latent : FittedModel
    relevance : ndarray of shape (D,), optional
        Of the columns of projections.
    """
    remainder = latent.remainder if isinstance(latent, RemainderModel) else None
    if isinstance(latent, RemainderModel):
        latent = latent.structure
    start = latent.start if isinstance(latent, DrawsModel | MixtureModel) else latent
    assert isinstance(start, AdditiveModel)
    settings: dict[str, Any] = {
        "parameters": parameters_settings(parameters),
        "columns": list(columns.names),
        "named": columns.named,
        "fitted": dict(fitted)
        | {
            "intercept_": start.intercept,
            "_row_variance": start.row_variance,
            "_information_scale": start.information_scale,
        },
        "terms": [
            {"name": term.name, "kernel": term.kernel.to_settings()}
            | {number: getattr(term, number) for number in TERM_NUMBERS}
            # A function of one column of numbers is identified by its name.
            | ({} if term.bound.is_plain else {"bound": term.bound.to_settings()})
            for term in start.terms
        ],
        "equations": {
            name: getattr(start.equations, name) for name in (*EQUATION_NUMBERS, *EQUATION_TOTALS)
        }
        | _rows_of(start.equations),
        "constant": start.constant,
    }
    if columns.kinds:
        settings["kinds"] = {name: kind.to_settings() for name, kind in columns.kinds.items()}
    arrays = {
        f"term{position}": {"points": term.cells.points, "dual": term.dual, "weight": term.weight}
        for position, term in enumerate(start.terms)
    }
    tree: dict[str, Any] = {"terms": arrays, "equations": _equation_arrays(start.equations)}
    if isinstance(latent, MixtureModel):
        settings["fitted"]["_mixture"], drawn = latent.stored()
        tree["fitted"] = {"_mixture": drawn}
    if isinstance(start, ProjectedModel):
        kept: dict[str, Any] = {f"_{name}": getattr(start.projections, name) for name in ARRAYS}
        settings["fitted"]["_used"] = [columns.names.index(name) for name in start.projected]
        settings["fitted"]["_response_unit"] = start.unit
        if isinstance(latent, DrawsModel):
            numbers, drawn = latent.stored()
            settings["fitted"]["_sampling"] = numbers
            kept |= {"_drawn": drawn, "_diagnostics": latent.diagnostics}
        tree["fitted"] = kept | {"_relevance": relevance}
    if remainder is not None:
        settings["fitted"]["_remainder"], arrays = remainder.stored()
        tree["fitted"] = tree.get("fitted", {}) | {"_remainder": arrays}
    return settings, tree


def latent_of(
    settings: dict[str, Any], tree: dict[str, Any], least_precision: float
) -> FittedModel:
    """Return the fitted f of ``described``.

    ``least_precision`` is that of ``AdditiveSystem``.

    Raises
    ------
    StorageError, KeyError, ValueError
        If the store is damaged, or too old.
    """
    check_table(settings, tree)
    fitted, kept = settings["fitted"], terms(settings, tree)
    model = AdditiveModel(
        terms=kept,
        equations=equations(settings, tree, kept),
        intercept=fitted["intercept_"],
        constant=constant(settings),
        row_variance=fitted["_row_variance"],
        information_scale=fitted["_information_scale"],
        least_precision=least_precision,
    )
    if "_mixture" in fitted:
        return MixtureModel.restored(model, fitted["_mixture"], tree["fitted"]["_mixture"])
    if "_used" in fitted:
        start = _projected_of(model, settings, tree["fitted"])
        if tree["fitted"].get("_drawn"):
            arrays = tree["fitted"]
            numbers = fitted["_sampling"]
            return DrawsModel.restored(start, numbers, arrays["_drawn"], arrays["_diagnostics"])
        model = start
    if "_remainder" in fitted:
        rest = FittedRemainder.restored(fitted["_remainder"], tree["fitted"]["_remainder"])
        return RemainderModel(model, rest)
    return model


def _projected_of(
    model: AdditiveModel, settings: dict[str, Any], arrays: dict[str, Any]
) -> ProjectedModel:
    """Return a sum whose first terms are functions of projections."""
    fitted = settings["fitted"]
    projected = tuple(settings["columns"][j] for j in fitted["_used"])
    projections = Projections(**{name: arrays[f"_{name}"] for name in ARRAYS})
    if not len(projected) == len(projections.centre) == len(arrays["_relevance"]):
        raise ValueError("the columns used and the projections do not agree")
    return ProjectedModel.around(
        model,
        projections,
        projected,
        # Stores of earlier versions only have the unit of the functions if there is a likelihood.
        fitted.get("_response_unit", math.sqrt(fitted["target_variance_"])),
        settings["parameters"].get("direction_uncertainty", True),
    )


def parameters_settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor's parameters as values that JSON can hold."""
    return {name: _parameter_settings(value) for name, value in parameters.items()}


def classes_settings(classes: NDArray[Any]) -> dict[str, Any]:
    """Return the labels of a classifier as values that JSON can hold."""
    return {"dtype": classes.dtype.str, "labels": classes.tolist()}


def _equation_arrays(kept: Equations) -> dict[str, Any]:
    """Rows as codes, or tables: variances, covariances and samples need them."""
    arrays: dict[str, Any] = {"weight": kept.weight, "information": kept.information}
    if isinstance(kept, RowEquations):
        weights = {"row_weight": kept.row_weight} if len(kept.row_weight) else {}
        multipliers = {f"multiplier{d}": z for d, z in kept.table.multipliers.items()}
        parts = {"ends": np.array(kept.table.ends)} if len(kept.table.ends) > 1 else {}
        rows = {"codes": kept.table.codes} | parts | weights | multipliers
        return arrays | rows | _multiplied(kept)
    assert isinstance(kept, BinEquations)
    pairs = {f"{d}-{e}": pair for (d, e), pair in kept.bins.pairs.items()}
    spreads = {f"{d}": spread for d, spread in enumerate(kept.bins.spreads)}
    return arrays | {"pairs": pairs, "spreads": spreads} | _multiplied(kept)


def _rows_of(kept: Equations) -> dict[str, Any]:
    """Numbers of rows: all of them, and what they count for where some have faded."""
    whole = round(kept.n_rows)
    return {"n_rows": whole} | ({} if whole == kept.n_rows else {"effective_rows": kept.n_rows})


def _multiplied(kept: Equations) -> dict[str, Any]:
    return {} if kept.multiplied is None else {"multiplied": kept.multiplied}


def columns(settings: dict[str, Any]) -> Columns:
    """Return the columns that a fit was given."""
    kinds = {name: kind_from_settings(kind) for name, kind in settings.get("kinds", {}).items()}
    return Columns(tuple(settings["columns"]), settings["named"], kinds)


def equations(settings: dict[str, Any], tree: dict[str, Any], terms: list[FittedTerm]) -> Equations:
    """Return the equations."""
    stored = tree["equations"]
    layout = Layout(tuple(term.name for term in terms), tuple(term.cells for term in terms))
    shared = {name: settings["equations"][name] for name in EQUATION_NUMBERS}
    shared["n_rows"] = settings["equations"].get("effective_rows", shared["n_rows"])
    shared |= {"weight": stored["weight"], "information": stored["information"]}
    shared |= _totals(settings, stored, layout)
    shared["multiplied"] = stored.get("multiplied")
    if "codes" in stored:
        multipliers = {
            d: stored[f"multiplier{d}"] for d in range(layout.n_terms) if f"multiplier{d}" in stored
        }
        ends = tuple(map(int, stored.get("ends", ())))
        table = RowTable(layout.names, layout.cells, stored["codes"], multipliers, ends)
        row_weight = stored.get("row_weight", np.empty(0))
        return RowEquations(layout=table, table=table, row_weight=row_weight, **shared)
    bins = TwoWayTables(
        cells=list(layout.cells),
        weights=layout.parts(stored["weight"]),
        information=layout.parts(stored["information"]),
        pairs={(d, e): stored["pairs"][f"{d}-{e}"] for d, e in pairs_of(len(terms))},
        spreads=[stored["spreads"][f"{d}"] for d in range(len(terms))],
        multiplied=layout.parts(stored["multiplied"]) if "multiplied" in stored else None,
    )
    return BinEquations(layout=layout, bins=bins, **shared)


def _totals(settings: dict[str, Any], stored: dict[str, Any], layout: Layout) -> dict[str, float]:
    """Sums over all rows; for earlier stores, as far as they can be reconstructed."""
    known = settings["equations"]
    if all(name in known for name in EQUATION_TOTALS):
        return {name: float(known[name]) for name in EQUATION_TOTALS}
    if "likelihood" not in settings["parameters"] and "_told" not in settings["fitted"]:
        total = float(known["n_rows"])  # weights were divided by their mean
    elif "codes" in stored:
        total = float(np.sum(stored.get("row_weight", np.ones(known["n_rows"]))))
    else:  # exact if one column is complete
        total = max((float(part.sum()) for part in layout.parts(stored["weight"])), default=0.0)
    return {"total_weight": total, "total_information": 0.0}


def constant(settings: dict[str, Any]) -> float | None:
    """Return the precision of the prior of the constant, or None if it is known.

    Earlier stores counted it as known; it was where the user had given it.
    """
    if "constant" in settings:
        value = settings["constant"]
        return None if value is None else float(value)
    return 0.0 if settings["parameters"].get("intercept") is None else None


def parameters(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor's parameters."""
    return {name: _parameter_from(value) for name, value in settings["parameters"].items()}


def terms(settings: dict[str, Any], tree: dict[str, Any]) -> list[FittedTerm]:
    """Return the fitted terms."""
    stored = tree["terms"]
    if len(settings["terms"]) != len(stored):
        raise StorageError("settings and arrays do not agree on the number of terms")
    return [
        _term(term, stored[f"term{position}"]) for position, term in enumerate(settings["terms"])
    ]


def _term(settings: dict[str, Any], arrays: dict[str, Floats]) -> FittedTerm:
    name, kernel = settings["name"], _kernel_from(settings["kernel"])
    if "bound" in settings:
        bound = BoundTerm.from_settings(name, kernel, settings["bound"])
    else:
        bound = BoundTerm.of_column(name, kernel)
    points = arrays["points"]
    return FittedTerm(
        name=name,
        kernel=kernel,
        bound=bound,
        cells=bound.cells(points if bound.multiplier is None else _inner(points)),
        dual=arrays["dual"],
        weight=arrays["weight"],
        **{number: settings[number] for number in TERM_NUMBERS},
    )


def _inner(points: Floats) -> Floats:
    """Inputs of the function itself, without the last, its multiplier."""
    return points[:, 0] if points.shape[1] == 2 else points[:, :-1]


def _term_settings(value: Any) -> Any:
    """Return what ``terms`` has for a column: a kernel, a term, text, or several of them."""
    if isinstance(value, (list, tuple)):
        return [_term_settings(one) for one in value]
    return value if isinstance(value, str) else value.to_settings()


def _term_from(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_term_from(one) for one in stored]
    if isinstance(stored, str):
        return stored
    return term_from_settings(stored) if "term" in stored else _kernel_from(stored)


def _parameter_settings(value: Any) -> Any:
    """Return a parameter as JSON: kernels as mappings, anything else as it is."""
    if isinstance(value, Kernel):
        return value.to_settings()
    if isinstance(value, (list, tuple)) and any(isinstance(one, Term) for one in value):
        return {"listed_terms": [_term_settings(one) for one in value]}
    if isinstance(value, Mapping) and any(
        isinstance(one, (Term, str, list, tuple)) for one in value.values()
    ):
        named = [[name, _term_settings(one)] for name, one in value.items()]
        return {"terms_by_column": named}
    if isinstance(value, Likelihood):
        return {"likelihood": value.to_settings()}
    if isinstance(value, Remainder):
        return {"remainder": value.to_settings()}
    if isinstance(value, Transform):
        return {"transform": value.settings()}
    if isinstance(value, HyperPriors):
        return {"priors": value.to_settings()}
    if isinstance(value, Mapping) and all(isinstance(kernel, Kernel) for kernel in value.values()):
        return {name: kernel.to_settings() for name, kernel in value.items()}
    if isinstance(value, Mapping):  # mappings of labels, which need not be text
        return {"by_label": [[_plain(label), float(number)] for label, number in value.items()]}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(one) for one in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    """Return a number of numpy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _parameter_from(stored: Any) -> Any:
    """Undo ``_parameter_settings``; a sequence is a tuple, as the estimators' defaults are."""
    if isinstance(stored, list):
        return tuple(stored)
    if not isinstance(stored, dict):
        return stored
    # a kernel; a column of that name would have a kernel as its value
    if isinstance(stored.get("type"), str):
        return _kernel_from(stored)
    if isinstance(stored.get("likelihood"), dict) and "name" in stored["likelihood"]:
        return from_settings(stored["likelihood"])
    if isinstance(stored.get("transform"), dict) and "name" in stored["transform"]:
        return transform_from_settings(stored["transform"])
    if isinstance(stored.get("remainder"), dict) and "n_neighbours" in stored["remainder"]:
        return Remainder.from_settings(stored["remainder"])
    if isinstance(stored.get("priors"), dict) and "noise_shape" in stored["priors"]:
        return HyperPriors(**stored["priors"])
    if isinstance(stored.get("by_label"), list):
        return dict(stored["by_label"])
    if isinstance(stored.get("listed_terms"), list):
        return [_term_from(one) for one in stored["listed_terms"]]
    if isinstance(stored.get("terms_by_column"), list):
        return {name: _term_from(one) for name, one in stored["terms_by_column"]}
    return {name: _kernel_from(kernel) for name, kernel in stored.items()}


def _kernel_from(settings: dict[str, Any]) -> Kernel:
    """Undo ``to_settings``; only the library's own kernels are ever made."""
    try:
        made = kernels.from_settings(settings)
    except ParameterError as error:
        raise StorageError(f"the kernel of a term cannot be restored: {error}") from error
    return made
