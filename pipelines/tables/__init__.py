"""Jobs on real tables by every method, with the same splits; see ``python -m pipelines.tables``."""
