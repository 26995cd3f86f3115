"""Forward passes along one sorted axis: likelihood, predicted states, gains.

Shared conventions of the compiled passes (``filter``, ``smoother``, ``product``):

* the state has m components and moves by Φ(τ) of ``transition``, τ = rate * step; the observed
  function is component 0;
* ``stationary`` (m, m) is P∞; ``step[t]`` is the distance from point t-1 to point t (step[0] is
  not used); ``weight[t]`` is the precision of the observation there (0: nothing was observed);
* symmetric m x m matrices are stored by rows of their upper triangle, m (m + 1) / 2 numbers.
"""

from __future__ import annotations

import math

import numpy as np

from dsgp.jit.flags import compiled
from dsgp.jit.transition import push, scaled


@compiled
def filter_states(shift, stationary, rate, step, weight, target, means, covariances):
    """Return Σ v²/F and Σ log(F w) over the observed points.

    Fills the predicted states that a backward pass needs, ``means`` (n, m) and ``covariances``
    (n, m (m + 1) / 2), where their length is not 0.
    """
    m = len(shift)
    keep = means.shape[0] > 0
    a = np.zeros(m)
    p = stationary.copy()
    half = np.empty((m, m))
    quadratic = 0.0
    log_det = 0.0
    product = 1.0
    for t in range(target.shape[0]):
        if t > 0:
            predict(shift, stationary, scaled(rate, step[t]), a, p, half)
        if keep:
            k = 0
            for i in range(m):
                means[t, i] = a[i]
                for j in range(i, m):
                    covariances[t, k] = p[i, j]
                    k += 1
        # F w = 1 + w P00 >= 1; the product is logged only before it can overflow.
        ratio = 1.0 + weight[t] * p[0, 0]
        product *= ratio
        if product > 1e150:
            log_det += math.log(product)
            product = 1.0
        innovation = target[t] - a[0]
        inverse = weight[t] / ratio
        quadratic += inverse * innovation * innovation
        update(shift, ratio, inverse, innovation, a, p)
    return quadratic, log_det + math.log(product)


@compiled
def filter_gains(shift, stationary, rate, step, weight, decay, shrinkage, covariance):
    """Fill what a mean-only pass needs: exp(-τ) and 1 / (1 + w P00), (n,), and P h, (n, m).

    The gain is P h w / (1 + w P00). Depends on the weights only, so it serves any target.
    """
    m = len(shift)
    a = np.zeros(m)
    p = stationary.copy()
    half = np.empty((m, m))
    for t in range(step.shape[0]):
        decay[t] = 0.0
        if t > 0:
            tau = scaled(rate, step[t])
            decay[t] = math.exp(-tau)
            predict(shift, stationary, tau, a, p, half)
        ratio = 1.0 + weight[t] * p[0, 0]
        shrinkage[t] = 1.0 / ratio
        for i in range(m):
            covariance[t, i] = p[0, i]
        update(shift, ratio, weight[t] / ratio, 0.0, a, p)


@compiled
def predict(shift, stationary, tau, a, p, half):
    """Move mean and covariance over τ, in place: P ← P∞ + Φ (P − P∞) Φᵀ.

    Exact at τ = 0 and free of a Q that would cancel for tiny steps.
    """
    m = len(shift)
    decay = math.exp(-tau)
    push(shift, tau, decay, a)
    for i in range(m):
        for j in range(m):
            total = 0.0
            power = 1.0
            for k in range(i, m):
                total += power * shift[k - i] * (p[k, j] - stationary[k, j])
                power *= tau
            half[i, j] = total
    for i in range(m):
        for j in range(i, m):
            total = 0.0
            power = 1.0
            for k in range(j, m):
                total += power * shift[k - j] * half[i, k]
                power *= tau
            p[i, j] = stationary[i, j] + decay * decay * total
            p[j, i] = p[i, j]


@compiled
def update(shift, ratio, inverse, innovation, a, p):
    """Condition mean and covariance on one observation, in place.

    Row 0 is divided by F w instead of subtracted: it keeps its precision when the noise is small.
    """
    m = len(shift)
    for i in range(m):
        a[i] += p[0, i] * (inverse * innovation)
    for i in range(1, m):
        scaled = inverse * p[0, i]
        for j in range(i, m):
            p[i, j] -= scaled * p[0, j]
            p[j, i] = p[i, j]
    for i in range(m):
        p[0, i] = p[0, i] / ratio
        p[i, 0] = p[0, i]
