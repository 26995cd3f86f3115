"""Fits of sums of terms with Gaussian noise."""
