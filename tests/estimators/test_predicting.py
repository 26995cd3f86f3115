"""An additive model in other inputs than its columns is that model in these inputs as columns."""

import re
from dataclasses import dataclass, replace

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import dsgp
from dsgp import AdditiveGPRegressor
from dsgp.estimators.gaussian import GaussianEstimator
from dsgp.kernels import Matern32, Matern52
from dsgp.models.additive import AdditiveModel
from dsgp.models.clock import Clock
from dsgp.models.columns import Columns
from dsgp.models.facts import FitFacts
from dsgp.models.gaussian import fit as gaussian_fit
from dsgp.models.gaussian import rows as gaussian_rows
from dsgp.models.gaussian.fit import GaussianFit
from dsgp.models.gaussian_model import GaussianModel
from dsgp.models.rows import bins
from dsgp.models.rows.columns import plain_terms
from dsgp.rows.sources import MappedSource, source_of

DIRECTIONS = np.array([[0.6, 0.8, 0.0], [0.0, -0.6, 0.8]])


@dataclass(frozen=True)
class Projection:
    """Each row by itself, so that its company changes no digit."""

    directions: np.ndarray

    def __call__(self, columns):
        return [
            sum(w * column for w, column in zip(direction, columns, strict=True))
            for direction in self.directions
        ]


@dataclass(frozen=True)
class Along(AdditiveModel):
    """Two terms in three columns, along directions that are given, and a variance beside."""

    extra: float = 0.25

    @property
    def used_columns(self):
        return ("a", "b", "c")

    def inputs(self, columns):
        assert all(len(column) <= 100 for column in columns)
        return Projection(DIRECTIONS)(columns)

    def _variance(self, rows, inputs):
        assert len(rows.columns) == 3
        return super()._variance(rows, inputs) + self.extra

    @classmethod
    def around(cls, model):
        return cls(**{name: getattr(model, name) for name in AdditiveModel.__dataclass_fields__})


class Projected(GaussianEstimator):
    def __init__(
        self, kernel=None, *, noise_variance=None, fixed_noise=False, solver="multigrid",
        learner="marginal", bins="auto", missing="error", tol=1e-4, max_iter=None, learner_tol=0.1,
        learner_max_iter=100, random_state=None, verbose=False,
    ):  # fmt: skip
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.fixed_noise = fixed_noise
        self.solver = solver
        self.learner = learner
        self.bins = bins
        self.missing = missing
        self.tol = tol
        self.max_iter = max_iter
        self.learner_tol = learner_tol
        self.learner_max_iter = learner_max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y):
        fit = GaussianFit.of(self.get_params(deep=False))
        clock = Clock()
        source = source_of(X, y)
        mapped = MappedSource(source, ("u0", "u1"), Projection(DIRECTIONS))
        outcome = fit(mapped, plain_terms(dict.fromkeys(mapped.names, self.kernel)), clock)
        facts = FitFacts.of_gaussian(outcome)
        model = GaussianModel(Along.around(outcome.model()), outcome.noise_variance)
        self._take(model, facts, Columns.of(source), clock.finish())
        fit.warn(outcome)
        return self

    @classmethod
    def _model_of(cls, settings, tree):
        model = super()._model_of(settings, tree)
        return replace(model, latent=Along.around(model.latent))

    def _summary(self):
        plain = super()._summary()
        return replace(
            plain,
            terms=plain.terms.assign(along=["ab", "bc"]),
            lines=[*plain.lines, ("directions", "given")],
        )


def rows(n=400):
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.uniform(-2, 2, (n, 3)), columns=["a", "b", "c"])
    u, v = Projection(DIRECTIONS)(list(X.to_numpy().T))
    return X, np.sin(2 * u) + v**2 + 0.1 * rng.standard_normal(n)


def projected(X):
    return np.column_stack(Projection(DIRECTIONS)(list(np.asarray(X).T)))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("dsgp.models.additive._ROW_BLOCK", 100)
    monkeypatch.setattr("dsgp.rows.sources.stream.BLOCK_ROWS", 170)
    monkeypatch.setattr("dsgp.estimators._MODELS", {"Projected": Projected})


@pytest.fixture(params=["every value", "bins"])
def models(request, monkeypatch):
    if request.param == "bins":  # few at first, so that there are more in the end
        monkeypatch.setattr(gaussian_rows, "EXACT_INPUTS", 0)
        monkeypatch.setattr(bins, "AUTO_BINS", dict.fromkeys((1, 2, 3, 4), 8))
    X, y = rows()
    return Projected(Matern52()).fit(X, y), AdditiveGPRegressor().fit(projected(X), y)


def test_it_is_fitted_like_the_model_in_the_projections(models):
    model, additive = models
    assert [term.name for term in model.terms_] == ["u0", "u1"]
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    for attribute in (
        "noise_variance_",
        "log_marginal_likelihood_",
        "learner_trace_",
        "bin_error_",
    ):
        assert getattr(model, attribute) == getattr(additive, attribute)
    assert model.bin_error_ <= gaussian_fit._BIN_LIMIT
    assert set(model.fit_seconds_) == set(additive.fit_seconds_) - {"keep"}
    assert len(model.terms_[0].cells) > 8


def test_it_predicts_like_the_model_in_the_projections(models):
    model, additive = models
    X, _ = rows(350)
    mean, std = model.predict(X, return_std=True)
    expected, theirs = additive.predict(projected(X), return_std=True)
    np.testing.assert_array_equal(mean, expected)
    np.testing.assert_allclose(std, np.sqrt(theirs**2 + 0.25), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X.assign(d="more")), mean)
    found, other = model.components(X), additive.components(projected(X))
    for name in ("mean", "std", "intercept"):
        np.testing.assert_allclose(found[name], other[name], rtol=1e-9)
    np.testing.assert_allclose(
        model.covariance(X[:120]), additive.covariance(projected(X[:120])), atol=1e-12
    )
    np.testing.assert_array_equal(
        model.sample(X, 2, random_state=0), additive.sample(projected(X), 2, random_state=0)
    )


def test_blocks_of_a_dask_collection_may_be_larger_than_ours(models):
    model, additive = models
    X, _ = rows(500)
    lazy = da.from_array(X.to_numpy(), chunks=(400, 3))
    for ours, theirs in zip(
        model.predict(lazy, return_std=True), model.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(ours.compute(), theirs, rtol=1e-9)
    np.testing.assert_array_equal(
        additive.predict(da.from_array(projected(X), chunks=(400, 2))).compute(), model.predict(X)
    )


def test_it_is_saved_and_read(models, tmp_path):
    model, _ = models
    X, _ = rows(50)
    model.save(tmp_path / "m.zarr")
    loaded = dsgp.load(tmp_path / "m.zarr")
    assert type(loaded) is Projected
    assert (loaded.kernel, loaded.get_params()) == (model.kernel, model.get_params())
    for ours, theirs in zip(
        loaded.predict(X, return_std=True), model.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.summary() == model.summary()


def test_its_summary_has_what_its_class_adds(models):
    model, additive = models
    text = model.summary()
    assert text.startswith("Projected: 400 rows, 2 terms")
    assert re.search(r"90 % interval +along\n", text)
    assert text.endswith("directions           given")
    lines = additive.summary().splitlines()
    assert set(lines[7:]) <= set(text.splitlines())


def test_used_columns_are_those_that_vary():
    X, y = rows(60)
    with pytest.warns(dsgp.errors.DataWarning):
        model = AdditiveGPRegressor(Matern32()).fit(X.assign(b=1.0), y)
    assert model.used_columns_ == ("a", "c")
    with pytest.raises(NotFittedError):
        AdditiveGPRegressor().summary()
