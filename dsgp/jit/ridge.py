"""Sums of ridge functions at rows: cubic splines of projections, and their derivatives.

The functions of all terms lie one after the other in flat arrays. Term m has nodes
``nodes[starts[m] : starts[m + 1]]``, K of them. Between two nodes a function is
c_0 + c_1 d + c_2 d² + c_3 d³, d the distance to the lower node; beyond the ends it continues as a
straight line. ``function`` has these four numbers per interval, ``cardinal`` those of the K splines
that are 1 at one node and 0 at the others.
"""

from __future__ import annotations

from dsgp.jit.flags import compiled
from dsgp.jit.projection import project


@compiled
def interval(nodes, first, last, u):
    """Return the position of the node below u, among nodes first … last − 1, but the last one."""
    low, high = first, last - 1
    while high - low > 1:
        middle = (low + high) // 2
        if nodes[middle] <= u:
            low = middle
        else:
            high = middle
    return low


@compiled
def fill_design(
    inputs, target, root_weight, directions, nodes, starts, cardinal, cardinal_starts, function, out
):
    """Write the linearised model of each row: out (n, Σ K + M D + 1).

    Columns: the value at u of each cardinal spline of each term, f_m'(u) x_j for each term and
    input, and the target; all times the root of the row's weight, where there is one.
    """
    n, n_features = inputs.shape
    n_terms = directions.shape[0]
    n_nodes = starts[n_terms]
    weighted = root_weight.shape[0] > 0
    for i in range(n):
        scale = root_weight[i] if weighted else 1.0
        for m in range(n_terms):
            first, last = starts[m], starts[m + 1]
            size = last - first
            u = project(inputs, i, directions[m])
            below = interval(nodes, first, last, u)
            inside = min(max(u, nodes[first]), nodes[last - 1])
            d, beyond = inside - nodes[below], u - inside
            at = cardinal_starts[m] + 4 * size * (below - first)
            for k in range(size):
                c = at + k
                out[i, first + k] = scale * (
                    ((cardinal[c + 3 * size] * d + cardinal[c + 2 * size]) * d + cardinal[c + size])
                    * d
                    + cardinal[c]
                )
            if beyond != 0.0:
                for k in range(size):
                    c = at + k
                    rise = (
                        3.0 * cardinal[c + 3 * size] * d + 2.0 * cardinal[c + 2 * size]
                    ) * d + cardinal[c + size]
                    out[i, first + k] += scale * beyond * rise
            f = 4 * (below - m)  # there is one interval less than nodes per term
            slope = (3.0 * function[f + 3] * d + 2.0 * function[f + 2]) * d + function[f + 1]
            column = n_nodes + m * n_features
            for j in range(n_features):
                out[i, column + j] = scale * slope * inputs[i, j]
        out[i, n_nodes + n_terms * n_features] = scale * target[i]


@compiled
def projection_range(inputs, directions, low, high):
    """Lower ``low`` and raise ``high`` (M,) to the projections of the rows."""
    for m in range(directions.shape[0]):
        for i in range(inputs.shape[0]):
            u = project(inputs, i, directions[m])
            low[m] = min(low[m], u)
            high[m] = max(high[m], u)


@compiled
def evaluate_ridges(inputs, directions, nodes, starts, function, value, slope):
    """Write the functions and their derivatives by the projection, each (n, M)."""
    n_terms = directions.shape[0]
    for i in range(inputs.shape[0]):
        for m in range(n_terms):
            first, last = starts[m], starts[m + 1]
            u = project(inputs, i, directions[m])
            below = interval(nodes, first, last, u)
            inside = min(max(u, nodes[first]), nodes[last - 1])
            d, beyond = inside - nodes[below], u - inside
            f = 4 * (below - m)
            rise = (3.0 * function[f + 3] * d + 2.0 * function[f + 2]) * d + function[f + 1]
            value[i, m] = (
                ((function[f + 3] * d + function[f + 2]) * d + function[f + 1]) * d
                + function[f]
                + beyond * rise
            )
            slope[i, m] = rise
