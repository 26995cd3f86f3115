"""Interactions that are looked for beside any model: what is asked, two-way tables, and rounds."""
