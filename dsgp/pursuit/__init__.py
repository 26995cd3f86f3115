"""Projection pursuit: sums of functions of one projection of the inputs each."""
