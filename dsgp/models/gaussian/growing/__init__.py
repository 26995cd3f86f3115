"""Training rows that further rows are added to: sums add up, on cells that hold both.

``adding`` is what others call. It takes the rows in by ``distinct`` where every distinct value is
kept, and by ``by_bins`` where there are bins; ``into_bins`` leads from the one to the other, and
``merging`` puts cells of several sets of rows together. ``refusals`` has what they all check.
"""

from dsgp.models.gaussian.growing.adding import grown, normalised, variance_of

__all__ = ["grown", "normalised", "variance_of"]
