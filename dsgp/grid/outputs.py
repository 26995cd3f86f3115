"""Posteriors in files: names and attributes of variables, and their history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from dsgp.errors import ParameterError
from dsgp.grid.marks import mark
from dsgp.grid.metadata import kept_attributes

CONVENTIONS = "CF-1.11"


@dataclass(frozen=True)
class Labels:
    """Names of the variables of a posterior in a file, and the command that made it.

    Attributes
    ----------
    mean, std : str
        Variables.
    made_by : str or None
        A command for ``history``; None: no command.
    include_noise : bool
        Whether ``std`` is that of a new observation.

    Examples
    --------
    >>> labels = Labels.of("sst")
    >>> labels.of_std({"standard_name": "sea_surface_temperature", "units": "K"}, "sst")
    {'units': 'K', 'standard_name': 'sea_surface_temperature standard_error',
     'long_name': 'standard deviation of sst'}
    """

    mean: str = "mean"
    std: str = "std"
    made_by: str | None = None
    include_noise: bool = False

    @classmethod
    def of(cls, variable: str, made_by: str | None = None, include_noise: bool = False) -> Labels:
        """Name a posterior after its field."""
        return cls(variable, f"{variable}_std", made_by, include_noise)

    def of_mean(self, attrs: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return attributes of the mean: the field's, as far as they hold for it."""
        kept = kept_attributes(attrs)
        kept["ancillary_variables"] = self.std
        return kept

    def of_std(self, attrs: Mapping[Any, Any], variable: str) -> dict[Any, Any]:
        """Return attributes of the standard deviation, in CF's words."""
        kept = {key: attrs[key] for key in ("units", "grid_mapping") if key in attrs}
        if "standard_name" in attrs:
            kept["standard_name"] = f"{str(attrs['standard_name']).split()[0]} standard_error"
        what = f"standard deviation of {attrs.get('long_name', variable)}"
        kept["long_name"] = what + ", of a new observation" * self.include_noise
        return kept

    @property
    def quantiles(self) -> str:
        """The variable of quantiles."""
        return f"{self.mean}_quantiles"

    def of_quantiles(self, attrs: Mapping[Any, Any], variable: str) -> dict[Any, Any]:
        """Return attributes of quantiles, which have the units of the field."""
        kept = {key: attrs[key] for key in ("units", "grid_mapping") if key in attrs}
        what = f"quantiles of {attrs.get('long_name', variable)}"
        return kept | {"long_name": what + ", of a new observation" * self.include_noise}

    def of_file(self, attrs: Mapping[Any, Any], variables: Iterable[object]) -> dict[Any, Any]:
        """Return global attributes: those of the source, the mark, and a line of history."""
        out = dict(attrs)
        out.setdefault("Conventions", CONVENTIONS)
        if self.made_by is not None:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            line = f"{now} dsgp {version('dsgp')}: {self.made_by}"
            out["history"] = "\n".join(filter(None, [line, str(attrs.get("history", ""))]))
        return out | mark(variables)

    def require_free(self, names: Iterable[object], with_quantiles: bool = False) -> None:
        """Raise ``ParameterError`` if a coordinate has the name of a variable."""
        taken = set(names)
        for name in (self.mean, self.std, *([self.quantiles] if with_quantiles else [])):
            if name in taken:
                raise ParameterError(
                    f"the result has a variable {name!r}, and the field a coordinate of that name; "
                    "rename one of them in the file"
                )


# ``mean`` and ``std``, and no history.
PLAIN = Labels()
