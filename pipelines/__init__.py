"""Jobs that chain data, models, evaluation and figures; they import dsgp, never the reverse."""
