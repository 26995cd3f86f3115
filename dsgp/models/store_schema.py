"""Schemas of the settings, and declarations of the arrays, of a stored model of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import Field, create_model

from dsgp.additive.tables import pairs_of
from dsgp.errors import StorageError
from dsgp.models.facts import FitFacts
from dsgp.models.pursuit.projections import ARRAYS
from dsgp.storage.schemas import Array, Open, check_arrays, validated

_Count = Annotated[int, Field(ge=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0)]

_Facts: Any = create_model(
    "_Facts",
    __base__=Open,
    **{f"{name}_": (hint, ...) for name, hint in get_type_hints(FitFacts).items()},  # type: ignore[call-overload]
)


class Fitted(_Facts):
    """What is reported of a fit, and numbers of its f."""

    noise_variance_: _NotNegative | None
    target_variance_: _NotNegative
    n_rows_: _Count
    n_missing_: dict[str, _Count]
    intercept_: float
    fit_seconds_: dict[str, _NotNegative]
    row_variance: Annotated[_Positive, Field(alias="_row_variance")]
    information_scale: Annotated[_Positive, Field(alias="_information_scale")]
    response_unit: Annotated[_Positive | None, Field(alias="_response_unit")] = None
    used: Annotated[list[_Count] | None, Field(alias="_used")] = None
    sampling: Annotated[dict[str, float] | None, Field(alias="_sampling")] = None
    mixture: Annotated[MixtureNumbers | None, Field(alias="_mixture")] = None
    likelihood: Annotated[dict[str, Any] | None, Field(alias="_likelihood_settings")] = None
    facts: Annotated[dict[str, Any] | None, Field(alias="_told")] = None
    transform: Annotated[dict[str, Any] | None, Field(alias="_transform_settings")] = None
    interactions: Annotated[InteractionSettings | None, Field(alias="_interactions")] = None
    remainder: Annotated[RemainderSettings | None, Field(alias="_remainder")] = None
    basis: Annotated[BasisSettings | None, Field(alias="_basis")] = None
    newton_iterations_: _Count | None = None
    newton_trace_: list[float] | None = None


class MixtureNumbers(Open):
    """Of ``DrawnParameters``, beside its arrays."""

    method: str
    terms: list[str]
    parameters: list[str]
    positions: list[_Count]
    fixed_noise: bool
    n_warmup: _Count
    n_nodes: _Count
    left_open: float


class InteractionSettings(Open):
    """Of a search for interactions."""

    pairs: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    scores: list[dict[str, Any]]


class RemainderSettings(Open):
    """Of a remainder, beside its arrays."""

    columns: Annotated[list[str], Field(min_length=1)]
    smoothness: Literal[1, 3, 5]
    variance: _Positive
    noise_variance: _Positive
    n_levels: list[Annotated[int, Field(ge=1)]]
    n_neighbours: Annotated[int, Field(ge=1)]
    centre: float
    share: _NotNegative


class ConstantSettings(Open):
    """Of a term that has no function, as its inputs did not vary."""

    name: str
    kernel: dict[str, Any]
    bound: dict[str, Any]
    ends: list[Annotated[list[float], Field(min_length=2, max_length=2)] | None]


class CutSettings(Open):
    """Of how the inputs of a term were cut, beside its arrays."""

    exact: bool
    high: float
    other_exact: bool | None = None
    side_highs: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None


class BasisSettings(Open):
    """Of what further rows can be added to, beside its arrays."""

    quadratic: _NotNegative
    total_information: float
    offset: float
    scale: _Positive
    weight_scale: _Positive
    log_jacobian: float
    n_rows: _Count
    n_updates: _Count
    left_out: list[ConstantSettings]
    cuts: list[CutSettings] | None = None


class TermSettings(Open):
    """Of a fitted term."""

    name: str
    kernel: dict[str, Any]
    centre: float
    explained_variance: _NotNegative
    effective_dof: float
    bound: dict[str, Any] | None = None


class EquationSettings(Open):
    """Of the equations; earlier stores lack the totals, and those without faded rows the last."""

    quadratic: float
    n_rows: _Count
    log_weight: float
    effective_rows: _NotNegative | None = None
    total_weight: _NotNegative | None = None
    total_information: float | None = None


class TableSettings(Open):
    """Of a model of one f of the columns of a table."""

    parameters: dict[str, Any]
    columns: list[str]
    named: bool
    fitted: Fitted
    terms: list[TermSettings]
    equations: EquationSettings
    constant: _NotNegative | None = None
    kinds: dict[str, dict[str, Any]] = Field(default_factory=dict)


class SplineColumns(Open):
    """The column of a spline."""

    names: Annotated[list[str], Field(min_length=1, max_length=1)]
    named: bool
    kinds: dict[str, dict[str, Any]]


class SplinePlace(Open):
    """Where inputs and targets of a spline are, and their units."""

    offset: float
    extent: _Positive
    centre: float
    scale: _Positive
    heaviest: _Positive


class SplineSettings(Open):
    """Of a ``SmoothingSpline``."""

    parameters: dict[str, Any]
    place: SplinePlace
    columns: SplineColumns
    rate: _NotNegative
    at_bound: bool
    n_rows: _Positive
    n_all_rows: _Count | None = None
    n_updates: _Count = 0
    within: float
    log_weights: float


class ClassLabels(Open):
    """Labels of a classifier."""

    dtype: str
    labels: list[bool | int | float | str]


class ClassSettings(Open):
    """Of a classifier, with those of the model of each f."""

    parameters: dict[str, Any]
    classes: ClassLabels
    n_rounds: _Count
    settled: bool
    models: Annotated[list[dict[str, Any]], Field(min_length=1)]


def check_spline(settings: Mapping[str, Any], tree: Mapping[str, Any]) -> None:
    """Raise ``StorageError`` if settings and arrays are not those of a spline."""
    validated(SplineSettings, settings, "settings")
    declared = {
        "data/points": Array(("points",), values="increasing"),
        "data/weight": Array(("points",), values="positive"),
        "data/target": Array(("points",)),
    }
    check_arrays(tree, declared)


def check_classes(settings: Mapping[str, Any], tree: Mapping[str, Any]) -> None:
    """Raise ``StorageError`` if a classifier is not one of as many models as it has arrays of."""
    checked = validated(ClassSettings, settings, "settings")
    expected = {f"class{k}" for k in range(len(checked.models))}
    if set(tree) != expected:
        raise StorageError(f"the arrays are of {sorted(tree)}, expected {sorted(expected)}")


def check_table(settings: Mapping[str, Any], tree: Mapping[str, Any]) -> None:
    """Raise ``StorageError`` if settings and arrays are not those of a model of a table.

    Format 1, which lacked equations, is refused elsewhere, with a remedy.
    """
    if "equations" not in settings:
        raise StorageError(
            "the model was saved in format version 1, which kept too little for its standard "
            "deviations; fit it again"
        )
    checked = validated(TableSettings, settings, "settings")
    sizes = check_arrays({"terms": tree.get("terms", {})}, _terms(checked))
    numbers = [sizes[f"points of term {d}"] for d in range(len(checked.terms))]
    rest = {name: node for name, node in tree.items() if name != "terms"}
    declared = _equations(numbers) | _fitted(checked, sum(numbers), _was_drawn(tree))
    declared |= _basis(checked, numbers)
    sizes = check_arrays(rest, declared)
    ends = rest["equations"].get("ends")
    if ends is not None and (ends[0] < 1 or ends[-1] != sizes.get("rows")):
        raise StorageError("array 'equations/ends' must go from the first row to the last one")
    if ("codes" in rest["equations"]) == ("spreads" in rest["equations"] and bool(numbers)):
        raise StorageError("arrays 'equations' must be of rows (codes) or of bins (spreads)")


def _terms(checked: TableSettings) -> dict[str, Array]:
    declared = {}
    for d, term in enumerate(checked.terms):
        length, at = f"points of term {d}", f"terms/term{d}"
        plain = term.bound is None
        declared[f"{at}/dual"] = Array((length,))
        declared[f"{at}/weight"] = Array((length,))
        declared[f"{at}/points"] = (
            Array((length,), values="increasing") if plain else Array((length,), or_columns=True)
        )
    return declared


def _equations(numbers: list[int]) -> dict[str, Array]:
    """Declare arrays of the equations of terms of so many points."""
    n_terms, size = len(numbers), sum(numbers)
    declared = {
        "equations/weight": Array((size,)),
        "equations/information": Array((size,)),
        "equations/multiplied": Array((size,), optional=True),
        "equations/codes": Array((n_terms, "rows"), "u", "any", optional=True),
        "equations/ends": Array(("parts",), "i", "increasing", optional=True),
        "equations/row_weight": Array(("rows",), values="positive", optional=True),
    }
    for d, number in enumerate(numbers):
        declared[f"equations/multiplier{d}"] = Array(("rows",), optional=True)
        declared[f"equations/spreads/{d}"] = Array((number,), values="not negative", optional=True)
    for d, e in pairs_of(n_terms):
        declared[f"equations/pairs/{d}-{e}"] = Array((numbers[d], numbers[e]), optional=True)
    return declared


def _was_drawn(tree: Mapping[str, Any]) -> bool:
    """Whether there are draws; earlier stores have diagnostics of none."""
    return len(tree.get("fitted", {}).get("_diagnostics", ())) > 0


def _fitted(checked: TableSettings, size: int, drawn: bool) -> dict[str, Array]:
    """Declare what a model has beyond a sum of functions of columns."""
    fitted = checked.fitted
    declared: dict[str, Array] = {}
    if fitted.used is not None:
        declared |= {f"fitted/_{name}": Array(None, "iuf", "any") for name in ARRAYS}
        declared["fitted/_relevance"] = Array((len(fitted.used),), values="any")
        declared["fitted/_diagnostics"] = Array(((0, 3), 2), values="any", optional=True)
    if fitted.sampling is not None and drawn:
        dims = {"centres": "M", "directions": "MD", "nodes": "MK", "values": "MK", "precision": "D"}
        dims |= dict.fromkeys(("interpolation_error", "log_likelihood", "noise_variance"), "")
        dims["variances"] = "M"
        for name, letters in dims.items():
            values = "positive" if name == "noise_variance" else "finite"
            declared[f"fitted/_drawn/{name}"] = Array(("draws", *letters), values=values)
    if fitted.mixture is not None:
        at, n_terms = "fitted/_mixture", len(checked.terms)
        declared[f"{at}/duals"] = Array(("members", size))
        declared[f"{at}/shifts"] = Array(("members",))
        declared[f"{at}/centres"] = Array(("members", n_terms))
        declared[f"{at}/row_variances"] = Array(("members",), values="positive")
        n_parameters = len(fitted.mixture.parameters) + 1
        declared[f"{at}/values"] = Array(("chains", "draws of a chain", n_parameters))
        declared[f"{at}/log_likelihood"] = Array(("chains", "draws of a chain"))
    if fitted.remainder is not None:
        at, n_columns = "fitted/_remainder", len(fitted.remainder.columns)
        declared[f"{at}/inputs"] = Array(("rows of the remainder", n_columns))
        declared[f"{at}/target"] = Array(("rows of the remainder",))
        declared[f"{at}/relative_noise"] = Array(("rows of the remainder",), values="positive")
        declared[f"{at}/lengthscales"] = Array((n_columns,), values="positive")
        n_levels = fitted.remainder.n_levels
        n_numbers = n_columns - len(n_levels)
        declared[f"{at}/offsets"] = Array((n_numbers,))
        declared[f"{at}/spreads"] = Array((n_numbers,), values="positive")
        if n_levels:
            declared[f"{at}/levels"] = Array((sum(n_levels) - len(n_levels),))
        declared[f"{at}/examples"] = Array(("examples", "columns"), values="any", optional=True)
    return declared


def _basis(checked: TableSettings, numbers: list[int]) -> dict[str, Array]:
    """Declare arrays of what further rows can be added to, of terms of so many points."""
    basis = checked.fitted.basis
    if basis is None:
        return {}
    at = "fitted/_basis"
    declared = {f"{at}/information": Array((sum(numbers),))}
    for d, number in enumerate(numbers):
        declared[f"{at}/spreads/{d}"] = Array((number,), values="not negative", optional=True)
    if basis.cuts is None:
        return declared
    if len(basis.cuts) != len(numbers):
        raise StorageError("settings: _basis: cuts: one of each term is expected")
    for d, (cut, number) in enumerate(zip(basis.cuts, numbers, strict=True)):
        of_term = f"{at}/cuts/{d}"
        declared[f"{of_term}/places"] = Array((number,), "i", "increasing")
        declared[f"{of_term}/levels"] = Array((f"levels {d}",), values="increasing", optional=True)
        sides = ("", "other_") if cut.side_highs is not None else ("",)
        for side in sides:
            name = f"{side}bins of cut {d}"
            declared[f"{of_term}/{side}edges"] = Array((f"{name}: edges",), values="increasing")
            declared[f"{of_term}/{side}origin"] = Array((name,), values="increasing")
            if len(sides) == 2:
                mean = f"{side or 'first_'}mean"
                variance = f"{side or 'first_'}variance"
                declared[f"{of_term}/{mean}"] = Array((name,))
                declared[f"{of_term}/{variance}"] = Array((name,), values="not negative")
    return declared


Fitted.model_rebuild()
