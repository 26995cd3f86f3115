"""How to make a model of a field again: code, and commands."""

from __future__ import annotations

import shlex

import xarray as xr

from dsgp.estimators.grid import GridGP
from dsgp.report.facts import Again, again_with, called

# Parameters that the call with known hyperparameters has in a form of its own, or has no use for.
_REPLACED = ("kernels", "noise_variance", "fixed_noise", "learner", "mean", "transform", "scales")
_IMPORTS = """\
import xarray as xr

import dsgp
from dsgp import GridGP
from dsgp.kernels import *
from dsgp.transforms import *
"""


def again_of_grid(model: GridGP) -> Again:
    """Describe how to make a model of a field again."""
    # Of a loaded model the kernels are those that were learned, not those that were given; arrays
    # have names instead of their numbers.
    without = ["kernels"] if model.kernels is model.kernels_ and model.learner is not None else []
    arrays = [
        name
        for name in ("mean", "noise_variance")
        if isinstance(getattr(model, name), xr.DataArray)
    ]
    call = called(model, [*without, *arrays])
    if arrays:
        named = "".join(f"    {name}={name},\n" for name in arrays)
        call = f"{call[:-1].rstrip()}\n{named})" if "\n" in call else f"GridGP(\n{named})"
    if not hasattr(model, "field_"):
        return again_with(model, f"{_IMPORTS}\n{_on_disk(call)}")
    field = model.field_
    variable = "field" if field.template.name is None else str(field.template.name)
    given = ["mask"] if "excluded by the mask" in field.left_out else []
    given += [] if field.domain is None else ["domain"]
    extra = "".join(f", {word}={word}" for word in given)
    lines = [f'da = xr.open_dataset("field.nc")[{variable!r}]  # the field of the fit']
    if given:
        are = "is" if len(given) == 1 else "are"
        lines.append(f"# The {' and the '.join(given)} of the fit {are} to be given again.")
    lines += ["# From the beginning:", f"model = {call}", f"model.fit(da{extra})", ""]
    lines += [*_known(model), f"model.fit(da{extra})", ""] if model.learner is not None else []
    options = ["--variable", shlex.quote(" ".join(variable.split()))]
    options += ["--domain", "all"] if field.domain is None else []  # not the default there
    options += [] if model.transform_ is None else ["--transform", model.transform_.name]
    lines += [
        "# A saved model holds the field:",
        'model = dsgp.load("model.zarr")',
        "posterior = model.posterior()",
        "",
        "# From the command line, with further options for other parameters that are not defaults:",
        f"#   dsgp smooth field.nc {' '.join(options)} --out smooth.zarr --save-model model.zarr",
        "#   dsgp report model.zarr -o report.html",
        "",
    ]
    return again_with(model, "\n".join([_IMPORTS, *lines]))


def _on_disk(call: str) -> str:
    return f"""\
model = {call}
# The variable "field" of a store, which may be larger than the memory:
model.smooth_store("field.zarr", "field", "smooth.zarr")

# From the command line:
#   dsgp smooth field.zarr --variable field --out smooth.zarr --report report.html
"""


def _known(model: GridGP) -> list[str]:
    """Write the model with the hyperparameters that were learned."""
    if model._model.n_effects:
        return [
            "# The mean of each cell, or the climatology, was learned: only a saved model has it",
            "# as it is on this page. Without it, by the averages of the cells:",
            *_call(model),
        ]
    return [
        "# With the hyperparameters of this page, to six digits; nothing is learned:",
        *_call(model),
    ]


def _call(model: GridGP) -> list[str]:
    parts = model.kernels_ if isinstance(model.kernels_, list) else [model.kernels_]
    lines = ["model = GridGP(", "    ["]
    for part in parts:
        lines += ["        {"]
        lines += [f"            {dim!r}: {kernel!r}," for dim, kernel in part.items()]
        lines += ["        },"]
    noise = model.noise_variance_
    lines += ["    ],", f"    {'noise_variance' if noise is None else f'{noise:.6g}'},"]
    if isinstance(model.mean, xr.DataArray):
        lines.append("    mean=mean,")
    elif model.mean != "constant":
        lines.append(f"    mean={model.mean!r},")
    if model.transform_ is not None:
        lines.append(f"    transform={model.transform_!r},")
    defaults = GridGP().get_params(deep=False)
    lines += [
        f"    {name}={value!r},"
        for name, value in model.get_params(deep=False).items()
        if name not in _REPLACED and repr(value) != repr(defaults[name])
    ]
    return [*lines, "    learner=None,", ")"]
