"""What a fitted model writes itself to; ``dsgp.load`` reads it."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model
from sklearn.utils.validation import check_is_fitted

from dsgp import storage
from dsgp.addresses import Place
from dsgp.storage.schemas import validated

_Kind = TypeVar("_Kind")
# Parameters as constructors annotate them; a user may have given 1 for True.
_PARAMETERS = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)


def with_parameters(kind: type[_Kind], parameters: Mapping[str, Any]) -> _Kind:
    """Make an estimator with stored parameters, which have the types that it annotates.

    Raises
    ------
    StorageError
        If a parameter is none of its own, or of another type.
    """
    hints = get_type_hints(kind.__init__)
    wanted = {
        name: (hints.get(name, Any), one.default)
        for name, one in inspect.signature(kind).parameters.items()
    }
    schema: type[BaseModel] = create_model(kind.__name__, __config__=_PARAMETERS, **wanted)  # type: ignore[call-overload]
    checked = validated(schema, dict(parameters), "settings: parameters")
    return kind(**{name: getattr(checked, name) for name in checked.model_fields_set})


class Saved:
    """Saving, for models that can describe themselves."""

    @abstractmethod
    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        """Return settings that JSON can hold, and arrays."""

    def save(
        self,
        path: str | Place,
        overwrite: bool = False,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the model to a zarr store of arrays and JSON, to be read by ``dsgp.load``.

        Parameters
        ----------
        path : str, Path or UPath
            The folder to write, usually named ``*.zarr``, or an address such as
            ``s3://bucket/model.zarr``. It is written under another name and then moved into place.
        overwrite : bool
            Replace an existing dsgp store.
        storage_options : mapping, optional
            Options of fsspec for an address.

        Raises
        ------
        StorageError
            If the path exists already, or cannot be written.
        """
        check_is_fitted(self)
        storage.write(path, type(self).__name__, *self._described(), overwrite, storage_options)
