"""The stage ``evaluation``: predictions for the test rows, and what is measured on them."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from dsgp.errors import DataWarning
from pipelines.run.chain import Work
from pipelines.run.encoding import Encoded
from pipelines.run.folders import write_json
from pipelines.run.measures import (
    impossible,
    measure_classes,
    measure_counts,
    measure_regression,
)
from pipelines.run.predicting import noise_variance, predicted, reach_of
from pipelines.run.sections import Evaluation
from pipelines.run.tables import ROW, TEST, TRUTH

PREDICTIONS = "predictions.parquet"
METRICS = "metrics.json"


def evaluate(work: Work, options: Evaluation, model: str) -> None:
    """Predict, measure, and write both; `model` is its name, for messages."""
    encoded = Encoded.of(work.needs["encode"])
    with work.clock.stage("predict", shown=False):
        table = predicted(work.needs, encoded, options.level)
    truth = encoded.column(TEST, TRUTH) if encoded.has_truth else None
    rows = pd.DataFrame({"row": encoded.column(TEST, ROW)})
    metrics: dict[str, Any]
    if encoded.task == "classification":
        classes = encoded.classes
        labels = classes[encoded.codes(TEST)]
        probability = table.to_numpy()
        true = None if truth is None else expit(truth)
        metrics = measure_classes(labels, probability, classes, true)
        if n_impossible := impossible(labels, probability, classes):
            warnings.warn(
                f"{model} gives probability 0 to the label of {n_impossible} of {len(labels)} test "
                "rows: its MNLL (mean negative log likelihood) is infinite, and left empty",
                DataWarning,
                stacklevel=2,
            )
        rows["observed"] = labels
        rows["predicted"] = classes[probability.argmax(axis=1)]
        for code, label in enumerate(classes):
            rows[f"p({label})"] = probability[:, code]
        truth = true
    else:
        observed = encoded.column(TEST, encoded.target).astype(np.float64)
        rows["observed"] = observed
        rows = pd.concat([rows, table], axis=1)
        if encoded.task == "counts":
            metrics = measure_counts(observed, table)
            truth = None  # of the rate, and exposures may differ
        else:
            std = table["std"].to_numpy() if "std" in table else None
            if std is not None and "lower" not in rows:
                rows["lower"] = rows["mean"] - reach_of(options.level) * rows["std"]
                rows["upper"] = rows["mean"] + reach_of(options.level) * rows["std"]
            metrics = measure_regression(
                observed,
                table["mean"].to_numpy(),
                std,
                encoded.facts["target_mean"],
                level=options.level,
                f=truth,
                f_noise_variance=encoded.facts["noise_variance"],
                noise_variance=None if "baseline" in work.needs else noise_variance(work.needs),
            )
            if "log_density" in table:  # of a transformed target, which is not normal
                density = measure_counts(observed, table)
                metrics |= {name: density[name] for name in ("mnlp", "coverage")}
    if truth is not None:
        rows["truth"] = truth
    with work.clock.stage("save"):
        rows.to_parquet(work.folder / PREDICTIONS, index=False)
        write_json(work.folder / METRICS, metrics)
