"""What users type: a module for each command, with its options, help and examples.

Nothing here imports what computes: numba, dask and xarray take seconds, and help, or the message
after a typing error, is wanted at once. What a command does is in a module of the same subject one
folder up, which is imported when the command runs.
"""
