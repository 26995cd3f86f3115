"""What users type: a module for each command, with its help, examples and defaults.

The options are in `dsgp.cli.options`. Nothing in these two folders imports what computes:
numba, dask and xarray take seconds, and help, or the message after a typing error, is wanted at
once. What a command does is in a module of the same subject one folder up, which is imported when
the command runs.
"""
