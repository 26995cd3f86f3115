"""Interactions whose kernels are too rough for the features that hold them: warned of once."""

import warnings

import numpy as np
import pandas as pd
import pytest

from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, Tensor
from dsgp.errors import DataWarning
from dsgp.kernels import Matern12
from dsgp.terms import pair_features, tensor

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.random((400, 2)), columns=["a", "b"])
Y = np.sin(9 * X["a"] * X["b"]) + 0.1 * RNG.standard_normal(400)


ROUGH = Tensor("a", "b", kernel=Matern12(0.05, 1.0), other_kernel=Matern12(0.05))


def warnings_of(model, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return [str(one.message) for one in caught if one.category is DataWarning]


@pytest.mark.parametrize("make", [AdditiveGPRegressor, AdditiveGPClassifier])
def test_what_features_leave_out_is_warned_of_once(monkeypatch, make):
    monkeypatch.setattr(tensor, "_FEW_CELLS", 10)
    monkeypatch.setattr(pair_features, "MOST_COLUMNS", 40)
    y = Y if make is AdditiveGPRegressor else Y > 0
    given = {"learner": None, "bins": 8}
    if make is AdditiveGPRegressor:
        given["noise_variance"] = 0.01
    model = make(terms=[ROUGH], **given)
    messages = warnings_of(model, y)
    assert sum("the function of 'a × b' varies too fast" in one for one in messages) == 1
    monkeypatch.undo()
    assert not any("varies too fast" in one for one in warnings_of(model, y))


def test_a_search_warns_of_no_kernel_that_it_left(monkeypatch):
    monkeypatch.setattr(tensor, "_FEW_CELLS", 10)
    monkeypatch.setattr(pair_features, "MOST_COLUMNS", 12)
    model = AdditiveGPClassifier(interactions=1)
    messages = warnings_of(model, Y > 0)
    assert sum("varies too fast" in one for one in messages) <= len(model.interactions_)
