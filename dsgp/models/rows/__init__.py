"""Rows of a source as cells of terms: every distinct value, or bins."""
