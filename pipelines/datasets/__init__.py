"""Data by name or file, split into train and test rows: numbers, labels and counts.

Only loading and splitting: values stay in their own units, and nothing is standardised.
"""

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
    "LabelledSplit",
    "Options",
    "Split",
    "additive_functions",
    "default_seed",
    "is_built_in",
    "load",
    "load_counts",
    "load_labels",
    "synth8d_moments",
]
