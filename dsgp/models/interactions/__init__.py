"""The search for interactions beside any model: its option, two-way tables, and rounds."""
