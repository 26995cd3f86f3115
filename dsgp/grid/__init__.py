"""Gaussian processes on grids: Kronecker algebra, gaps, long axes, grids larger than memory."""
