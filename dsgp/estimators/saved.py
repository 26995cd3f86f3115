"""What a fitted model writes itself to; ``dsgp.load`` reads it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from sklearn.utils.validation import check_is_fitted

from dsgp import storage
from dsgp.addresses import Place


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
            A folder to be, usually named ``*.zarr``, or an address such as
            ``s3://bucket/model.zarr``. It is written aside and put into place.
        overwrite : bool
            Replace a dsgp store that is there.
        storage_options : mapping, optional
            Of an address, for fsspec.

        Raises
        ------
        StorageError
            If something is there already, or the place cannot be written.
        """
        check_is_fitted(self)
        storage.write(path, type(self).__name__, *self._described(), overwrite, storage_options)
