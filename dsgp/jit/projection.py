"""Loops over the rows of one projection x·w: project, bin, differentiate by w.

``weight`` of length 0 counts every row once. A row of weight 0 has a posterior and no influence.
"""

from __future__ import annotations

from dsgp.jit.flags import compiled


@compiled
def project(inputs, row, direction):
    """Inner product of a row and a direction, always summed in the same order.

    Equal rows give equal bits, unlike a matrix product.
    """
    total = 0.0
    for j in range(direction.shape[0]):
        total += inputs[row, j] * direction[j]
    return total


@compiled
def project_rows(inputs, directions, out):
    """Write the projections (n, M)."""
    for i in range(inputs.shape[0]):
        for m in range(directions.shape[0]):
            out[i, m] = project(inputs, i, directions[m])


@compiled
def bin_rows(position, target, weight, low, scale, codes, sums):
    """Put the rows into bins of equal width, ``scale`` per unit, that begin at ``low``.

    Fills the bin of each row, replaces ``position`` by that within the bin, in widths, and adds to
    ``sums`` (n_bins, 4) of each bin the weight, weight * position, weight * target and row count.
    """
    weighted = weight.shape[0] > 0
    last = sums.shape[0] - 1
    for i in range(position.shape[0]):
        place = (position[i] - low) * scale
        code = min(int(place), last)
        place -= code
        codes[i] = code
        position[i] = place
        w = weight[i] if weighted else 1.0
        sums[code, 0] += w
        sums[code, 1] += w * place
        sums[code, 2] += w * target[i]
        sums[code, 3] += 1.0


@compiled
def differentiate(inputs, target, weight, codes, position, width, table, fitted, by_direction):
    """Fill the posterior mean at the rows, and add to ``by_direction`` the derivative by w.

    ``table`` (n_points, 6) holds for each point its position in units of ``width``, the mean of its
    targets, that mean minus the function's, the function's slope, the variance of the slope and its
    covariance with the function. From the point to its rows the function is a line. Weights are
    relative to the noise: the caller divides the derivative by the noise variance.

    Returns Σ w (y − target of the point − slope * distance)² and Σ w * slope variance * distance².
    """
    weighted = weight.shape[0] > 0
    within = 0.0
    spread = 0.0
    for i in range(target.shape[0]):
        code = codes[i]
        distance = (position[i] - table[code, 0]) * width
        slope = table[code, 3]
        rise = slope * distance
        fitted[i] = table[code, 1] - table[code, 2] + rise
        w = weight[i] if weighted else 1.0
        deviation = target[i] - table[code, 1] - rise
        lost = table[code, 4] * distance
        within += w * deviation * deviation
        spread += w * lost * distance
        # w [(y − f) f' − Cov(f, f')] at the row
        by_row = w * ((deviation + table[code, 2]) * slope - table[code, 5] - lost)
        for j in range(inputs.shape[1]):
            by_direction[j] += by_row * inputs[i, j]
    return within, spread
