"""Fields on grids: maps of mean and standard deviation beside what was observed, or lines."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from dsgp.errors import DataError, ParameterError
from dsgp.grid.axes import check_dims
from dsgp.plotting.figures import DisplayedFigure
from dsgp.plotting.maps import axis_of, draw_maps, line_of, name_axis
from dsgp.plotting.style import (
    ACCENT,
    INK,
    frame,
    label,
    normal_quantile,
)

_MOST_ROWS = 12


def plot_field(
    posterior: xr.Dataset,
    observed: xr.DataArray | None = None,
    *,
    variable: str | None = None,
    dims: Sequence[str] | None = None,
    at: Mapping[str, Any] | None = None,
    n_slices: int = 3,
    level: float = 0.95,
    cmap: str | None = None,
    y_down: bool = False,
    target: str | None = None,
) -> Figure:
    """Draw the mean and the standard deviation of a field, beside the observed values.

    Two dims give maps, with a row of panels for each slice along the others; all maps of observed
    values and means share one colour scale, those of the standard deviation another. Cells without
    a posterior, such as land, are grey within a dark line; cells that have one but were not
    observed, such as clouds, are white in the map of observed values. One dim gives a line with its
    credible band. Coordinates ascend to the right and upwards, whichever way they run in the
    dataset.

    Parameters
    ----------
    posterior : Dataset
        With ``mean`` and ``std``, as ``GridGP`` and the accessor return it.
    observed : DataArray, optional
        On the same grid or on another one with the same dims.
    variable : str, optional
        Draw ``{variable}_mean`` and ``{variable}_std``, as the accessor of a Dataset names them, or
        ``{variable}`` and ``{variable}_std``, as ``dsgp smooth`` writes them. Not needed for a file
        of ``dsgp smooth``.
    dims : sequence of one or two str, optional
        Vertical and horizontal dims of the maps, or the dim of a line. Default: the last two that
        ``at`` does not name.
    at : mapping of dim to coordinate or list of coordinates, optional
        Slices along the other dims; the nearest coordinates are drawn. Text such as "2019-03-01" is
        a date. Default: ``n_slices`` of the first other dim, and the middle of any further dims.
    n_slices : int
    level : float in (0, 1)
        Posterior probability of the band of a line, pointwise.
    cmap : str, optional
        Colours of observed values and means. Default: viridis, or blue and orange about 0 where
        values have both signs. Both, and those of the deviation, change evenly, and colour-blind
        readers can distinguish them.
    y_down : bool
        Draw the vertical coordinate increasing downwards, for depth, pressure or rows of an image.
    target : str, optional
        Name and unit of the field. Default: those in its attributes.

    Returns
    -------
    Figure

    Raises
    ------
    DataError
        If mean or standard deviation are absent, or a dim has no usable coordinate.
    ParameterError
        If an option is out of its range or names another dim.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from dsgp.plotting import plot_field
    >>> grid = {"lat": [50.0, 40.0], "lon": [0.0, 10.0, 20.0]}
    >>> mean = xr.DataArray([[1.0, 2, 3], [4, 5, 6]], grid, attrs={"units": "K"})
    >>> figure = plot_field(xr.Dataset({"mean": mean, "std": 0 * mean + 0.1}))
    >>> [ax.get_title() for ax in figure.axes[:2]]
    ['mean', 'std']
    """
    z = normal_quantile(level)
    if n_slices < 1:
        raise ParameterError(f"n_slices must be at least 1, got {n_slices}")
    pair = moments_of(posterior, variable)
    at = dict(at or {})
    drawn, others = _roles(pair["mean"], dims, at)
    slices = _slices(pair, others, at, n_slices)
    if len(slices) > _MOST_ROWS:
        raise ParameterError(
            f"{len(slices)} slices along {', '.join(map(repr, others))}; a figure has room for "
            f"{_MOST_ROWS}: name fewer in at="
        )
    if observed is not None:
        _require_dims(observed, pair["mean"])
    # Of a lazy posterior only what is drawn is computed, mean and deviation at once.
    rows = [
        (slice_title(pair, chosen), pair.isel(chosen).compute(), _beside(observed, pair, chosen))
        for chosen in slices
    ]
    name = _quantity(pair["mean"], variable) if target is None else target
    if len(drawn) == 1:
        return _lines(rows, drawn[0], z, level, name)
    return draw_maps(rows, drawn, cmap, y_down, name)


# ---------------------------------------------------------------------- what is drawn


def _pair(posterior: Any, variable: str | None) -> tuple[str, str]:
    """Names of mean and standard deviation: of the library, or as the command writes them."""
    there = list(map(str, getattr(posterior, "data_vars", ())))
    pairs = [(name, f"{name}_std") for name in there if f"{name}_std" in there]
    if variable is None:
        return pairs[0] if len(pairs) == 1 and "mean" not in there else ("mean", "std")
    stored = (variable, f"{variable}_std")
    return stored if stored in pairs else (f"{variable}_mean", f"{variable}_std")


def moments_of(posterior: Any, variable: str | None) -> xr.Dataset:
    """Return mean and standard deviation of a posterior, whatever they are called in it."""
    names = _pair(posterior, variable)
    variables = list(map(str, getattr(posterior, "data_vars", ())))
    if not isinstance(posterior, xr.Dataset) or not set(names) <= set(variables):
        several = sorted(one[:-5] for one in variables if one.endswith("_mean"))
        remedy = (
            f"choose one by variable=: {', '.join(map(repr, several))}"
            if variable is None and several
            else "give what posterior(), predict() or the accessor return"
        )
        raise DataError(
            f"expected a Dataset with {names[0]!r} and {names[1]!r}, got "
            f"{variables or type(posterior).__name__}; {remedy}"
        )
    return xr.Dataset({"mean": posterior[names[0]], "std": posterior[names[1]]})


def _roles(
    mean: xr.DataArray, dims: Sequence[str] | None, at: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Return the dims to draw along, and the others."""
    mean_dims = [str(dim) for dim in mean.dims]
    check_dims(at, mean_dims, "at")
    if dims is None:
        drawn = [dim for dim in mean_dims if dim not in at][-2:]
    else:
        check_dims(dims, mean_dims, "dims")
        drawn = list(dims)
    if len(drawn) not in (1, 2) or len(set(drawn)) < len(drawn) or set(drawn) & set(at):
        raise ParameterError(
            f"dims: expected one or two dims that at= does not name, got {drawn} of {mean_dims}"
        )
    return drawn, [dim for dim in mean_dims if dim not in drawn]


def _slices(
    pair: xr.Dataset, others: Sequence[str], at: Mapping[str, Any], n_slices: int
) -> list[dict[str, int]]:
    """Return positions along the other dims, a mapping for each row of panels."""
    chosen = []
    for number, dim in enumerate(others):
        n = pair.sizes[dim]
        if dim in at:
            chosen.append(_nearest(pair, dim, at[dim]))
            continue
        count = min(n_slices, n) if number == 0 else 1
        chosen.append([int((k + 0.5) * n / count) for k in range(count)])
    return [dict(zip(others, each, strict=True)) for each in itertools.product(*chosen)]


def _nearest(pair: xr.Dataset | xr.DataArray, dim: str, values: Any) -> list[int]:
    """Return the positions of the nearest coordinates."""
    axis = axis_of(pair, dim)
    distance = np.abs(axis.points[:, None] - axis.numbers(values))
    nearest = distance.argmin(axis=0)
    return [axis.n_outer - 1 - int(i) if axis.descending else int(i) for i in nearest]


def _require_dims(observed: Any, mean: xr.DataArray) -> None:
    if not isinstance(observed, xr.DataArray) or set(observed.dims) != set(mean.dims):
        got = getattr(observed, "dims", type(observed).__name__)
        raise DataError(f"observed: expected a DataArray of the dims {mean.dims}, got {got}")


def _beside(
    observed: xr.DataArray | None, pair: xr.Dataset, chosen: Mapping[str, int]
) -> xr.DataArray | None:
    """Return the observed slice nearest to that of the posterior."""
    if observed is None:
        return None
    where = {
        dim: _nearest(observed, dim, pair.coords[dim].values[i])[0] for dim, i in chosen.items()
    }
    return observed.isel(where).compute()


def slice_title(pair: xr.Dataset, chosen: Mapping[str, int]) -> str:
    """Name a slice by its coordinates."""
    words = []
    for dim, i in chosen.items():
        value = pair.coords[dim].values[i]
        if isinstance(value, np.datetime64):
            text = np.datetime_as_string(value, unit="s").removesuffix("T00:00:00")
        elif isinstance(value, (np.floating, float)):
            text = f"{dim} {value:.6g}"
        elif hasattr(value, "calendar"):
            text = value.strftime("%Y-%m-%dT%H:%M:%S").removesuffix("T00:00:00")
        else:
            text = f"{dim} {value}"
        words.append(text.replace("T", " ") if text[:1].isdigit() else text)
    return ", ".join(words)


def _quantity(mean: xr.DataArray, variable: str | None) -> str:
    names = (mean.attrs.get("long_name"), variable, mean.name)
    name = next((str(name) for name in names if name not in (None, "mean")), "")
    unit = str(mean.attrs.get("units", ""))
    return f"{name} ({unit})" if name and unit else name or unit


# ---------------------------------------------------------------------- lines


def _lines(
    rows: Sequence[tuple[str, xr.Dataset, xr.DataArray | None]],
    dim: str,
    z: float,
    level: float,
    name: str,
) -> Figure:
    fig = DisplayedFigure((6.4, 2.3 * len(rows) + 0.7), layout="constrained")
    panels = fig.subplots(len(rows), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for (title, pair, beside), ax in zip(rows, panels, strict=True):
        line = line_of(pair["mean"], dim)
        mean, reach = pair["mean"].values, z * pair["std"].values
        ax.fill_between(
            line.values, mean - reach, mean + reach, color=INK, alpha=0.2, linewidth=0,
            label=f"{level:.0%} band",
        )  # fmt: skip
        if beside is not None:
            few = beside.size <= 200
            ax.plot(
                line_of(beside, dim).values, beside.values, "o", color=ACCENT, label="observed",
                markersize=3.2 if few else 2.0, alpha=0.9 if few else 0.4, markeredgewidth=0,
            )  # fmt: skip
        ax.plot(line.values, mean, color=INK, linewidth=1.4, label="mean")
        ax.set_title(title, fontsize=8.5)
        ax.set_ylabel(label(name, 30), fontsize=8.5, parse_math=False)
        ax.margins(x=0.01)
        frame(ax)
    name_axis(panels[-1].xaxis, line)
    handles, words = panels[0].get_legend_handles_labels()
    fig.legend(
        handles, words, loc="outside lower center", ncols=3, fontsize=8, frameon=False,
        handlelength=1.6,
    )  # fmt: skip
    return fig
