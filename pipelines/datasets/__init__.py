"""Data by name or file, split into train and test rows: numbers, labels and counts; fields.

Only loading and splitting: values stay in their own units, and nothing is standardised.
"""

from pipelines.datasets.fields import HeldOut, hold_out, load_field
from pipelines.datasets.loading import (
    Options,
    default_seed,
    is_built_in,
    load,
    load_counts,
    load_labels,
)
from pipelines.datasets.splits import CountSplit, Floats, LabelledSplit, Split
from pipelines.datasets.synthetic import _interpolate as _interpolate
from pipelines.datasets.synthetic import additive_functions, synth8d_moments

__all__ = [
    "CountSplit",
    "Floats",
    "HeldOut",
    "LabelledSplit",
    "Options",
    "Split",
    "additive_functions",
    "default_seed",
    "hold_out",
    "is_built_in",
    "load",
    "load_counts",
    "load_field",
    "load_labels",
    "synth8d_moments",
]
