"""Laplace's approximation: modes, evidence and learners of sums of terms with any likelihood."""
