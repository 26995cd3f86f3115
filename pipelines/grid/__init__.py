"""Grids: images that are smoothed and interpolated, fields whose gaps are filled, corners."""
