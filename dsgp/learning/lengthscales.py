"""Whether a lengthscale far from the optimum of a search is better.

For structure finer than anything tried see `dsgp.learning.scales`.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from dsgp.additive import TwoWayTables
from dsgp.kernels import Kernel
from dsgp.learning.search import Search
from dsgp.terms import Floats, Observations

# Lengthscales tried for each single term at the optimum, in widths of the bulk of its rows.
_SCAN = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SCAN_GAIN = 1.0  # smallest gain, in nats, for which a search is repeated


def other_lengthscales(
    tables: TwoWayTables,
    mean: Floats,
    searches: list[Search],
    kernels: list[Kernel],
    noise_variance: float,
) -> list[Kernel]:
    """Try lengthscales far from the optimum for every single term, with the other terms fixed.

    They are compared by the 1-D marginal likelihood of the term's partial residual; ``mean`` is the
    posterior mean at the bins, (Σ n_bins,).
    """
    fit = tables.multiply(mean[None])[0]
    better = list(kernels)
    for d, (search, kernel) in enumerate(zip(searches, kernels, strict=True)):
        if "lengthscale" not in search.names:
            continue
        part = slice(tables.offsets[d], tables.offsets[d + 1])
        weight = tables.weights[d]
        # A bin whose rows all have weight 0 is not informative.
        rest = (tables.information[d] - fit[part]) / np.where(weight > 0, weight, 1.0)
        target = rest + mean[part]
        value = partial(
            tables.cells[d].log_marginal_likelihood,
            seen=Observations(target, weight / noise_variance),
        )
        best_value = value(kernel) + SCAN_GAIN
        for factor in _SCAN:
            length = factor * search.width
            if not search.allows("lengthscale", length):
                continue
            # A term that has shrunk to nothing gains from no lengthscale unless its variance is
            # reset.
            for start in (kernel, search.start) if "variance" in search.names else (kernel,):
                tried = start.with_parameters(lengthscale=length)
                if (found := value(tried)) > best_value:
                    better[d], best_value = tried, found
    return better
