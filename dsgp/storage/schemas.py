"""Checks of what a store says, by schemas of its settings and declarations of its arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from dsgp.errors import StorageError

# A number, a name that stands for the same number everywhere, or any of several of these.
Length: TypeAlias = "int | str | tuple[int | str, ...]"

_Schema = TypeVar("_Schema", bound=BaseModel)


class Strict(BaseModel):
    """Settings of which every name is known, and no value is turned into another type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Open(BaseModel):
    """Settings of which some are known; there may be others, of other releases."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, allow_inf_nan=False)


def described(error: ValidationError) -> str:
    """Describe the first thing that is wrong: where, what, and what was there."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    came = "" if first["type"] == "missing" else f"; got {first['input']!r:.80}"
    return f"{place}: {first['msg']}{came}"


def validated(schema: type[_Schema], settings: Any, what: str) -> _Schema:
    """Return settings as a schema has them; raise ``StorageError`` naming the first that is wrong.

    Examples
    --------
    >>> class Place(Strict):
    ...     offset: float
    >>> validated(Place, {"offset": 1.5}, "place").offset
    1.5
    >>> validated(Place, {"offset": "far"}, "place")
    Traceback (most recent call last):
        ...
    dsgp.errors.StorageError: place: offset: Input should be a valid number; got 'far'
    """
    try:
        return schema.model_validate(settings)
    except ValidationError as error:
        raise StorageError(f"{what}: {described(error)}") from error


@dataclass(frozen=True)
class Array:
    """What an array of a store must be.

    Attributes
    ----------
    dims : tuple
        Length of each dimension: a number; a name, which stands for one number in all arrays of a
        store; or a tuple of those that are allowed. None: any shape.
    or_columns : bool
        Whether the array may have one dimension more.
    kinds : str
        Of its dtype, as numpy's ``dtype.kind``.
    values : {"finite", "positive", "not negative", "increasing", "any"}
        What its numbers must be.
    below : int, optional
        Integers are from 0 to less than this.
    optional : bool
        Whether a store may lack it.
    """

    dims: tuple[Length, ...] | None
    kinds: str = "f"
    values: str = "finite"
    below: int | None = None
    optional: bool = False
    or_columns: bool = False


def check_arrays(tree: Mapping[str, Any], declared: Mapping[str, Array]) -> dict[str, int]:
    """Raise ``StorageError`` if the arrays of a store are not what is declared.

    Parameters
    ----------
    tree : mapping
        Names to arrays, or to further mappings.
    declared : mapping of str to Array
        By path, such as ``"terms/term0/points"``.

    Returns
    -------
    dict of str to int
        What the names of lengths stand for.

    Examples
    --------
    >>> import numpy as np
    >>> declared = {"x": Array(("n",), values="increasing"), "y": Array(("n",))}
    >>> check_arrays({"x": np.arange(3.0), "y": np.ones(3)}, declared)
    {'n': 3}
    >>> check_arrays({"x": np.arange(3.0), "y": np.ones(4)}, declared)
    Traceback (most recent call last):
        ...
    dsgp.errors.StorageError: array 'y' has shape (4,), expected (n=3)
    """
    arrays = dict(_flat(tree, ""))
    for path in arrays:
        if path not in declared:
            raise StorageError(f"array {path!r} does not belong to such a model")
    sizes: dict[str, int] = {}
    for path, one in declared.items():
        if path in arrays:
            _check(path, arrays[path], one, sizes)
        elif not one.optional:
            raise StorageError(f"array {path!r} is missing")
    return sizes


def _flat(tree: Mapping[str, Any], within: str) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, node in tree.items():
        if isinstance(node, Mapping):
            yield from _flat(node, f"{within}{name}/")
        else:
            yield f"{within}{name}", node


def _check(path: str, array: NDArray[Any], one: Array, sizes: dict[str, int]) -> None:
    if array.dtype.kind not in one.kinds:
        raise StorageError(f"array {path!r} is of type {array.dtype}, which is not allowed")
    if one.dims is not None:
        further = array.ndim - len(one.dims)
        fits = further in ((0, 1) if one.or_columns else (0,)) and all(
            _fits(length, allowed, sizes)
            for length, allowed in zip(array.shape, one.dims, strict=False)
        )
        if not fits:
            expected = ", ".join(_described(allowed, sizes) for allowed in one.dims)
            raise StorageError(f"array {path!r} has shape {array.shape}, expected ({expected})")
    if not _VALUES[one.values](array):
        raise StorageError(f"array {path!r} has numbers that are not {one.values}")
    if one.below is not None and array.size and not 0 <= array.min() <= array.max() < one.below:
        raise StorageError(f"array {path!r} has codes that are not from 0 to {one.below - 1}")


def _fits(length: int, allowed: Length, sizes: dict[str, int]) -> bool:
    if isinstance(allowed, tuple):
        return any(length == (sizes.get(a) if isinstance(a, str) else a) for a in allowed)
    if isinstance(allowed, str):
        return sizes.setdefault(allowed, length) == length
    return length == allowed


def _described(allowed: Length, sizes: dict[str, int]) -> str:
    if isinstance(allowed, tuple):
        return " or ".join(_described(one, sizes) for one in allowed)
    return f"{allowed}={sizes[allowed]}" if allowed in sizes else str(allowed)


_VALUES = {
    "any": lambda array: True,
    "finite": lambda array: bool(np.isfinite(array).all()),
    "positive": lambda array: bool((np.isfinite(array) & (array > 0)).all()),
    "not negative": lambda array: bool((np.isfinite(array) & (array >= 0)).all()),
    "increasing": lambda array: bool(np.isfinite(array).all() and (np.diff(array) > 0).all()),
}
