"""Fits of sums of terms with any likelihood, by Laplace's approximation."""
