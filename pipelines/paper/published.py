"""Numbers that the paper gives in words and tables; what its figures show it does not say.

References are to the labels of the paper's sections, figures and tables.
"""

from dataclasses import dataclass

# fig:class: log-log slopes of learning and prediction, 2000 to 50 000 rows.
CLASS_SLOPES = {"full-gp": 2.75, "additive-la": 1.07, "fic": 1.53, "ivm": 0.80, "svm": 2.16}
# fig:kron: 2^8 to 2^20 corners, the last seven points.
KRONECKER_SLOPES = {"full GP": 2.6, "Kronecker": 1.05}
# Section sec:regsynth: "close to three", and "scale linearly".
SLOPES = {
    "full-gp": "close to 3", "spgp": "linear", "additive-vb": "linear",
    "additive-mcmc": "linear", "ppgpr-greedy": "linear", "ppgpr-mcmc": "linear",
}  # fmt: skip
# tbl:paretoFrontier: of seven data sets; the errors are not said to be NMSE or MNLP.
PARETO_COUNTS = {
    "ppgpr-greedy": 7, "ppgpr-mcmc": 0, "additive-vb": 1, "additive-mcmc": 0, "spgp": 4,
    "full-gp": 6,
}  # fmt: skip
# Image of 200 by 200 pixels, and of a quarter of them: seconds of learning, of reconstruction.
IMAGE_SECONDS = {"denoise": (42.75, 1490.3), "interpolate": (4.57, 186.61)}


@dataclass(frozen=True)
class Result:
    """A line of tbl:class-results; None where the paper has NA."""

    error_rate: float | None
    mnll: float | None
    seconds: float | None


CLASS_RESULTS = {
    "synth-8d-binary": {
        "full-gp": Result(0.6040, 0.7402, 2244.5111),
        "additive-la": Result(0.2800, 0.5929, 161.1185),
        "fic": Result(0.2800, 1.0640, 525.6684),
        "fic-tenth": Result(0.4550, 1.3612, 850.8427),
        "ivm": Result(0.2800, 0.6931, 65.1951),
        "svm": Result(0.2940, 0.5838, 345.7267),
    },
    "breast-cancer": {
        "full-gp": Result(0.0667, 0.1436, 6.0435),
        "additive-la": Result(0.0667, 0.1215, 89.2993),
        "fic": Result(0.0556, 0.0999, 27.9584),
        "fic-tenth": Result(0.0556, 0.0999, 55.9182),
        "ivm": Result(0.0667, 0.6382, 12.4867),
        "svm": Result(0.0556, 3.1717, 1.7062),
    },
    "magic-gamma": {
        "full-gp": Result(None, None, None),
        "additive-la": Result(0.1393, 0.3419, 2345.6546),
        "fic": Result(0.1441, 0.3656, 3339.6185),
        "fic-tenth": Result(0.1396, 0.3654, 7331.2780),
        "ivm": Result(0.6583, 0.6932, 118.0407),
        "svm": Result(0.1191, 0.3026, 8070.2400),
    },
    "ijcnn1": {
        "full-gp": Result(None, None, None),
        "additive-la": Result(0.0516, 0.1560, 14505.5000),
        "fic": Result(0.0482, 1.1859, 4390.2498),
        "fic-tenth": Result(0.0770, 0.8171, 16728.0911),
        "ivm": Result(0.0950, 0.6932, 369.0000),
        "svm": Result(0.0166, 0.0509, 22170.1000),
    },
}
