"""Gaps in rows to predict: used where the model uses them, reported where training had none."""

import warnings

import numpy as np
import pandas as pd
import pytest

from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, GeneralizedAdditiveGP
from dsgp.errors import DataWarning
from dsgp.kernels import Matern52
from tests.cli.commands import completed

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.uniform(0, 1, (80, 2)), columns=["area", "age"])
GIVEN = {"learner": None, "missing": "ignore"}
NEVER = (
    r"'area' is missing in 1 of 2 rows to predict, and was never missing in training.*"
    " there, which is {:+.3g}"
)


def fitted(table, target):
    return AdditiveGPRegressor(Matern52(0.5, 4.0), noise_variance=0.01, **GIVEN).fit(table, target)


def test_a_gap_that_training_never_had_is_reported_with_what_it_changes():
    y = 12 + 3 * X["area"] + np.sin(X["age"])
    model = fitted(X, y)
    gap = pd.DataFrame({"area": [0.5, np.nan], "age": [0.5, 0.5]})
    centre = next(term.centre for term in model.terms_ if term.name == "area")
    with pytest.warns(DataWarning, match=NEVER.format(-centre).replace("+", r"\+")):
        mean = model.predict(gap)
    with pytest.warns(DataWarning, match="was never missing in training"):
        parts = model.components(gap)["mean"]
    assert parts.sel(term="area")[1] == pytest.approx(-centre)
    np.testing.assert_allclose(mean, model.intercept_ + parts.sum("term"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X[:3])
        fitted(X.mask(X["area"] < 0.1), y).predict(gap[1:].assign(age=0.5))


def test_labels_and_counts_are_reported_too():
    gap = pd.DataFrame({"area": [0.5, np.nan], "age": [0.5, 0.5]})
    kernel = Matern52(0.5, 1.0)
    for model in (
        AdditiveGPClassifier(kernel, **GIVEN),
        GeneralizedAdditiveGP("poisson", kernel, **GIVEN),
    ):
        with pytest.warns(DataWarning, match="'area' .*was never missing in training"):
            model.fit(X, (X["area"] > 0.4).astype(int)).predict(gap)


@pytest.mark.parametrize("text", ["area,age\n,0.5\n", "area,age\n,\n", "age,area\n0.5,NA\n"])
def test_one_row_without_its_input_is_predicted(tmp_path, text):
    model = fitted(X.mask(X < 0.05), X["age"])
    model.save(tmp_path / "m.zarr")
    (tmp_path / "new.csv").write_text(text)
    arguments = ["predict", tmp_path / "m.zarr", tmp_path / "new.csv", "--out", tmp_path / "p.csv"]
    completed(*arguments)
    age = np.nan if text.endswith(",\n") else 0.5
    frame = pd.DataFrame({"area": [None], "age": [age]}, dtype=object)  # as pandas reads it
    assert pd.read_csv(tmp_path / "p.csv")["mean"][0] == pytest.approx(model.predict(frame)[0])
