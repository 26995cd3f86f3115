"""Choices that options of the commands have."""

from __future__ import annotations

from enum import StrEnum

# Covariances along a dim, as messages name them.
GRID_KERNELS = "matern12, matern32, matern52, matern72, squared-exponential or periodic:PERIOD"


class Model(StrEnum):
    """Choices of ``--model``."""

    additive = "additive"
    pursuit = "pursuit"
    classifier = "classifier"
    bernoulli = "bernoulli"
    binomial = "binomial"
    poisson = "poisson"
    negative_binomial = "negative-binomial"
    gamma = "gamma"
    ordered = "ordered"
    student_t = "student-t"


class Kernel(StrEnum):
    """Choices of ``--kernel``, smoother from one to the next."""

    matern12 = "matern12"
    matern32 = "matern32"
    matern52 = "matern52"
    matern72 = "matern72"


class Solver(StrEnum):
    """Choices of ``--solver``."""

    multigrid = "multigrid"
    cg = "cg"
    backfitting = "backfitting"


class Transform(StrEnum):
    """Choices of ``--transform``."""

    none = "none"
    log = "log"
    yeo_johnson = "yeo-johnson"


class Learner(StrEnum):
    """Choices of ``--learner``."""

    marginal = "marginal"
    independent = "independent"
    vbem = "vbem"
    em = "em"
    none = "none"


class Missing(StrEnum):
    """Choices of ``--missing``."""

    error = "error"
    ignore = "ignore"


class Method(StrEnum):
    """Choices of ``--method``."""

    refit = "refit"
    greedy = "greedy"
    gibbs = "gibbs"
    plain_gibbs = "plain-gibbs"
    collapsed = "collapsed"


class Link(StrEnum):
    """Choices of ``--link``."""

    logit = "logit"
    probit = "probit"


class ClassWeight(StrEnum):
    """Choices of ``--class-weight``."""

    balanced = "balanced"


class MultiClass(StrEnum):
    """Choices of ``--multi-class``."""

    softmax = "softmax"
    ovr = "ovr"
