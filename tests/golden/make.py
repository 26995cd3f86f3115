"""Make the stores that later releases must read: `python -m tests.golden.make FOLDER`.

Run it with the release whose stores are to be kept, once for each; what is in `stores.zip` stays.
"""

import shutil
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import xarray as xr

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    GridGP,
    ProjectionPursuitGPRegressor,
    SmoothingSpline,
)
from dsgp.estimators import GeneralizedPursuitGP, ProjectionPursuitGPClassifier
from dsgp.kernels import Matern12, Matern32, Matern52
from dsgp.likelihoods import Ordered

QUICK = {"learner": None}


def table():
    """Rows of three inputs, one of them with ties, and targets of every kind."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(0, 1, (60, 3)), columns=["age", "dose", "week"])
    X["week"] = np.floor(8 * X["week"])
    f = np.sin(6 * X["age"]) + X["dose"] * (X["week"] > 3)
    return X, {
        "number": f + 0.1 * rng.standard_normal(60),
        "positive": np.exp(f + 0.1 * rng.standard_normal(60)),
        "count": rng.poisson(np.exp(f)).astype(float),
        "level": np.digitize(f, [0.0, 1.0]).astype(float),
        "label": np.array(["a", "b"])[(f > 0.5).astype(int)],
        "class": np.array(["x", "y", "z"])[np.digitize(f, [0.0, 1.0])],
        "weight": rng.uniform(0.5, 2.0, 60),
    }


def tables():
    """Models of tables by name, not fitted, and the targets that they are of."""
    kernel, terms = Matern52(0.3, 1.0), {"dose": Matern12(0.5, 0.5), "week": Matern32(3.0, 0.3)}
    additive = {"kernel": kernel, "terms": terms} | QUICK
    return {
        "additive": (AdditiveGPRegressor(noise_variance=0.01, **additive), "number"),
        "additive-learned": (AdditiveGPRegressor(), "number"),
        "additive-bins": (AdditiveGPRegressor(noise_variance=0.01, bins=16, **additive), "number"),
        "additive-log": (
            AdditiveGPRegressor(noise_variance=0.01, target_transform="log", **additive),
            "positive",
        ),
        "counts": (GeneralizedAdditiveGP("poisson", **additive), "count"),
        "levels": (GeneralizedAdditiveGP(Ordered(), **additive), "level"),
        "two-classes": (AdditiveGPClassifier(**additive), "label"),
        "softmax": (AdditiveGPClassifier(multi_class="softmax", **additive), "class"),
        "pursuit": (ProjectionPursuitGPRegressor(n_projections=2, n_starts=2), "number"),
        "pursuit-gibbs": (
            ProjectionPursuitGPRegressor(
                n_projections=1, method="gibbs", n_draws=6, n_warmup=4, n_chains=1
            ),
            "number",
        ),
        "pursuit-counts": (GeneralizedPursuitGP("poisson", n_projections=1, n_starts=2), "count"),
        "pursuit-classes": (ProjectionPursuitGPClassifier(n_projections=1, n_starts=2), "label"),
        "spline": (SmoothingSpline(), "number"),
    }


def field():
    """A field of days and places, and the same with gaps."""
    rng = np.random.default_rng(1)
    time = pd.date_range("2001-01-01", periods=14, freq="MS")
    x = np.arange(6.0)
    values = np.add.outer(np.cos(np.arange(14) / 2), np.sin(x / 2)) + 2.5
    values += 0.05 * rng.standard_normal(values.shape)
    da = xr.DataArray(values, {"time": time, "x": x}, name="t", attrs={"units": "K"})
    return da, da.where(rng.random(da.shape) > 0.3)


def fields():
    """Models of fields by name, not fitted, and whether they are of the field with gaps."""
    kernels = {"time": Matern32(60.0, 1.0), "x": Matern52(2.0, 1.0)}
    return {
        "grid": (GridGP(kernels, 0.01, learner=None), False),
        "grid-gaps": (GridGP(kernels, 0.01, learner=None), True),
        "grid-season": (GridGP(scales=1, mean="time.month"), True),
        "grid-log": (GridGP(kernels, 0.01, transform="log", learner=None), True),
    }


def answers_of_table(model, X):
    """What a model of a table says of rows."""
    if hasattr(model, "predict_proba"):
        return {"probability": model.predict_proba(X), "predicted": model.predict(X).astype("U8")}
    mean, std = model.predict(X, return_std=True)
    ends = model.predict_interval(X, 0.9) if hasattr(model, "predict_interval") else ()
    return {"mean": mean, "std": std} | {f"end{k}": end for k, end in enumerate(ends)}


def answers_of_field(model):
    """What a model of a field says of its cells and beyond."""
    posterior = model.posterior()
    ahead = model.predict(time=["2002-05-15"], x=[0.5, 7.0])
    return {"mean": posterior["mean"].values, "std": posterior["std"].values} | {
        f"ahead_{name}": ahead[name].values for name in ("mean", "std")
    }


def new_rows(X):
    """Rows to predict: some of the training, some between, some beyond."""
    rows = X.iloc[:12].copy()
    rows["age"] = np.linspace(-0.2, 1.2, 12)
    return rows


def make(folder: Path) -> None:
    """Fit and save every model, with what it says."""
    X, targets = table()
    for name, (model, target) in tables().items():
        weight = targets["weight"] if target == "number" else None
        inputs = X[["age"]] if isinstance(model, SmoothingSpline) else X
        model.fit(inputs, targets[target], sample_weight=weight)
        model.save(folder / f"{name}.zarr")
        np.savez_compressed(folder / f"{name}.npz", **answers_of_table(model, new_rows(X)))
    for name, (model, gaps) in fields().items():
        model.fit(field()[int(gaps)])
        model.save(folder / f"{name}.zarr")
        np.savez_compressed(folder / f"{name}.npz", **answers_of_field(model))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as made:
        make(Path(made))
        shutil.make_archive(str(Path(sys.argv[1]) / "stores"), "zip", made)
