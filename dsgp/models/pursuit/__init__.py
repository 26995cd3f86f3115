"""Fits of functions of projections."""
