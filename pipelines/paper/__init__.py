"""The evaluation of the paper: its data, its methods, its tables and figures, and ours beside."""
