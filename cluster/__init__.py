"""Recipes that start a dask cluster, run a command on it, and take it down."""
