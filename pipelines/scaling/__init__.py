"""The large-N benchmark: time, memory and accuracy of a fit against the number of rows."""

from pipelines.scaling.rows import synth8d_arrays, synth8d_blocks

__all__ = ["synth8d_arrays", "synth8d_blocks"]
