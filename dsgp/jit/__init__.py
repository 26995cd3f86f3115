"""Compiled loops over plain arrays; they know nothing of kernels, dask or users."""
