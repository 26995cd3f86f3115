"""From tables to codes: columns, axes, rows."""
