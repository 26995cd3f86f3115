"""Pairs that are found on the scale of a link: counts, rates and classes."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax

import dsgp
from dsgp import AdditiveGPClassifier, AdditiveGPRegressor, GeneralizedAdditiveGP, Tensor
from dsgp.errors import ParameterError
from dsgp.estimators.given_terms import GivenTerms
from dsgp.kernels import Matern52
from dsgp.learning.pair_scores import PairedColumn, gain
from dsgp.likelihoods import Binomial, Poisson
from dsgp.models.clock import Clock
from dsgp.models.interactions.search import least_of
from dsgp.models.laplace.class_interactions import ClassLaplaceFits
from dsgp.models.laplace.fit import LaplaceFit
from dsgp.models.laplace.interactions import LaplaceFits
from dsgp.models.laplace.judging import BinsOfTerms
from dsgp.models.laplace.softmax import fit_classes
from dsgp.rows.sources import source_of

KERNEL = Matern52(1.0, 0.5)


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=n).round(2),
            "b": rng.normal(size=n).round(2),
            "g": rng.choice(list("uvw"), n),
            "nothing": rng.normal(size=n).round(2),
        }
    )
    f = 0.5 * np.sin(2 * X["a"]) * X["b"] + 0.4 * X["b"] * X["g"].map({"u": 0, "v": 1, "w": -1})
    return X, f.to_numpy(), rng


def found(model):
    return {frozenset(pair) for pair in model.interactions_}


PAIRS = {frozenset("ab"), frozenset("bg")}


# ---------------------------------------------------------------- against independent answers


def laplace_fits(likelihood, X, y, *, classes=None, learner=None, **extra):
    """Fits of rows with hyperparameters as given, and their terms."""
    parameters = GeneralizedAdditiveGP(likelihood, learner=learner, tol=1e-8).get_params(deep=False)
    fit = LaplaceFit.of(parameters)
    weight = extra.pop("sample_weight", None)
    source = source_of(X, y, weight, extra=extra, labels=classes)
    terms = GivenTerms.of(KERNEL, ["a", "b"]).bound(source, priors_count=True)
    if classes is None:
        return LaplaceFits(fit, likelihood, source, Clock()), terms
    return ClassLaplaceFits(fit, classes, "logit", True, None, source, Clock()), terms


def test_scores_and_precisions_are_derivatives_of_the_log_likelihood():
    X, f, rng = table(60)
    X = X[["a", "b"]]
    trials = rng.integers(1, 5, len(X)).astype(float)
    y = rng.binomial(trials.astype(int), 1 / (1 + np.exp(-f))).astype(float)
    weight, offset = rng.uniform(0.5, 2, len(X)), rng.normal(size=len(X))
    fits, terms = laplace_fits(Binomial(), X, y, sample_weight=weight, offset=offset, trials=trials)
    outcome = fits.fitted(terms, [], None)
    rows = next(iter(fits.source.chunks()))()
    (left,) = fits.working(outcome)(rows, dict(zip(fits.source.names, rows.columns, strict=True)))
    at = outcome.model().moments(rows, False)[0] + offset

    def density(shift):
        return weight * Binomial().log_density(y, at + shift, trials)

    step = 1e-4
    up, middle, down = density(step), density(0.0), density(-step)
    np.testing.assert_allclose(left.score, (up - down) / (2 * step), atol=1e-6)
    np.testing.assert_allclose(left.precision, -(up - 2 * middle + down) / step**2, atol=1e-5)
    np.testing.assert_allclose(left.squares, left.score**2 / weight, atol=1e-12)


def test_gains_beside_unknown_main_effects_are_those_of_the_marginal_likelihood():
    rng = np.random.default_rng(0)
    shares = np.array([0.2, 0.3, 0.1, 0.4])
    first = PairedColumn(shares, False).features()[0]
    other = PairedColumn(np.array([0.5, 0.25, 0.25]), True).features()[0]
    n = 300
    a = rng.choice(4, n, p=shares)
    b = (a + rng.choice(3, n, p=[0.7, 0.2, 0.1])) % 3  # they go together
    y = 0.5 * first[a, 0] * other[b, 1] + 0.7 * rng.standard_normal(n)
    precision, score = np.zeros((4, 3)), np.zeros((4, 3))
    weight = rng.uniform(0.5, 2.0, n)
    np.add.at(precision, (a, b), weight)
    np.add.at(score, (a, b), weight * y)
    promised, variance = gain(precision, score, [first], [other], main_effects_known=False)
    features = (first[a][:, :, None] * other[b][:, None, :]).reshape(n, -1)
    main = np.hstack([a[:, None] == np.arange(4), b[:, None] == np.arange(3)]).astype(float)

    def likelihood(v):
        covariance = np.diag(1 / weight) + v * features @ features.T + 1e5 * main @ main.T
        return -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(covariance)[1])

    assert promised == pytest.approx(likelihood(variance) - likelihood(0.0), abs=1e-3)
    for factor in (0.3, 3.0):
        assert likelihood(factor * variance) - likelihood(0.0) < promised
    empty = np.where(np.arange(4)[:, None] == 2, 0.0, 1.0)  # a bin without rows
    again = gain(precision * empty, score * empty, [first], [other], main_effects_known=False)
    assert np.isfinite(again).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_row_is_left_out_as_if_it_were_not_there(weighted):
    X, f, rng = table(80)
    X = X[["a", "b"]]
    exposure = rng.uniform(0.5, 3, len(X))
    weight = rng.integers(1, 4, len(X)).astype(float) if weighted else None
    y = rng.poisson(exposure * np.exp(0.5 + f)).astype(float)
    fits, terms = laplace_fits(Poisson(), X, y, sample_weight=weight, exposure=exposure)
    outcome = fits.fitted(terms, [], None)
    rows = next(iter(fits.source.chunks()))()
    judged = fits.leave_one_out(outcome)
    assert judged.columns == ("a", "b")
    densities = judged.densities(rows)
    if weighted:
        np.testing.assert_array_equal(judged.counts(rows), weight)
    for row in (0, 7, 33):
        kept = np.arange(len(X)) != row
        model = GeneralizedAdditiveGP("poisson", KERNEL, learner=None)
        rest = None if weight is None else weight[kept]
        model.fit(X[kept], y[kept], rest, exposure=exposure[kept])
        expected = model.log_predictive_density(X.iloc[[row]], y[[row]], exposure=exposure[[row]])[
            0
        ]
        assert densities[row] == pytest.approx(expected, abs=0.05)


@pytest.fixture(scope="module")
def softmax_fit():
    X, f, rng = table(90)
    X = X[["a", "b"]]
    p = np.exp(log_softmax(np.stack([f, -f, 0 * f]), axis=0))
    y = (np.cumsum(p, axis=0) < rng.random(len(f))).sum(axis=0)
    fits, terms = laplace_fits(Poisson(), X, y, classes=np.arange(3))
    return fits, fits.fitted(terms, [], None), X, y


def test_the_evidence_of_a_softmax_is_the_dense_one(softmax_fit):
    fits, outcome, X, y = softmax_fit
    latents = np.stack([each.latent() for each in outcome.fits.outcomes])
    prior = sum(KERNEL.covariance(X[c].to_numpy(), X[c].to_numpy()) for c in "ab")
    log_p = log_softmax(latents, axis=0)
    expected = log_p[y, np.arange(len(y))].sum()
    for c, each in enumerate(outcome.fits.outcomes):
        own, w = latents[c] - each.level, np.exp(log_p[c]) * -np.expm1(log_p[c])
        dual = (y == c) - np.exp(log_p[c])  # K⁻¹ F̂ at the mode
        np.testing.assert_allclose(prior @ dual, own, atol=1e-4)
        half = np.sqrt(w)[:, None] * prior * np.sqrt(w)
        expected -= 0.5 * (own @ dual + np.linalg.slogdet(np.eye(len(y)) + half)[1])
    assert fits.evidence(outcome) == pytest.approx(expected, abs=1e-3)


def test_classes_are_left_out_as_if_they_were_not_there(softmax_fit):
    fits, outcome, X, y = softmax_fit
    rows = next(iter(fits.source.chunks()))()
    densities = fits.leave_one_out(outcome).densities(rows)
    for row in (3, 50):
        kept = np.arange(len(y)) != row
        model = AdditiveGPClassifier(KERNEL, learner=None).fit(X[kept], y[kept])
        expected = np.log(model.predict_proba(X.iloc[[row]])[0, y[row]])
        assert densities[row] == pytest.approx(expected, abs=0.05)


def test_more_functions_must_gain_what_chance_brings_as_seldom():
    rng = np.random.default_rng(0)
    gains = 0.5 * np.sum(np.maximum(rng.standard_normal((400_000, 4)), 0.0) ** 2, axis=1)
    alone = 0.5 * np.maximum(rng.standard_normal(400_000), 0.0) ** 2
    assert least_of(2.0, 1) == 2.0
    expected = np.mean(alone > 2.0)
    assert np.mean(gains > least_of(2.0, 4)) == pytest.approx(expected, rel=0.05)


def test_dispersion_of_bins_is_that_of_rows_within_them():
    X, f, rng = table(1200)
    y = rng.poisson(20 * np.exp(f))
    parameters = GeneralizedAdditiveGP("poisson", learner=None, tol=1e-6).get_params(deep=False)
    fit, source = LaplaceFit.of(parameters), source_of(X[["a", "b"]], y)
    terms = ["a", "b", Tensor("a", "b", KERNEL, Matern52(1.0))]
    responses = fit.prepare(source, GivenTerms.of(KERNEL, terms).bound(source, True), Clock())
    outcome = fit(responses, Poisson(), Clock())
    term = outcome.terms()[2]
    codes = np.concatenate([codes for _, codes in responses.rows.table.blocks()], axis=1)[2]
    at_rows = term.mean(X[["a", "b"]].to_numpy())
    middle = term.mean(term.cells.points)
    w = np.exp(outcome.latent())
    expected = np.sum(w**2 * (at_rows - middle[codes]) ** 2) / w.sum()
    assert BinsOfTerms.of(outcome, {"a × b"}).dispersion == pytest.approx(expected, rel=0.5)
    assert BinsOfTerms.of(outcome, {"a"}).dispersion < 0.1 * expected
    assert BinsOfTerms.of(outcome, set()) == (0.0, 0.0)


# ---------------------------------------------------------------- pairs that are found


def test_rates_with_weights_and_their_store(tmp_path):
    X, f, rng = table(2000)
    exposure = rng.uniform(0.5, 4.0, len(X))
    y = rng.poisson(exposure * np.exp(f))
    weight = np.where(rng.random(len(X)) < 0.1, 0.0, 1.0)
    model = GeneralizedAdditiveGP("poisson", interactions="auto")
    model.fit(X, y, weight, exposure=exposure)
    assert found(model) == PAIRS
    scores = model.interaction_scores_
    assert len(scores) == 6
    assert scores.loc[~scores["chosen"], "gain"].max() < 5
    assert any("2 of 6 pairs" in note for note in model.learner_notes_)
    assert any("leave-one-out" in note for note in model.learner_notes_)
    plain = GeneralizedAdditiveGP("poisson").fit(X, y, weight, exposure=exposure)
    assert model.log_marginal_likelihood_ > plain.log_marginal_likelihood_ + 100
    model.save(tmp_path / "m.zarr")
    again = dsgp.load(tmp_path / "m.zarr")
    assert again.interactions_ == model.interactions_
    assert again.interactions == "auto"
    pd.testing.assert_frame_equal(again.interaction_scores_, scores)
    np.testing.assert_array_equal(again.predict(X.head(50)), model.predict(X.head(50)))


def test_labels_in_blocks_have_the_pairs_of_those_in_memory():
    X, f, rng = table(3000)
    y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(-3 * f)), "yes", "no")
    model = AdditiveGPClassifier(interactions=2, bins="auto").fit(X, y)
    assert found(model) == PAIRS
    frame = dd.from_pandas(X.assign(y=y), npartitions=3)
    streamed = AdditiveGPClassifier(interactions=2).fit(frame[list(X)], frame["y"])
    assert streamed.interactions_ == model.interactions_
    np.testing.assert_allclose(
        streamed.interaction_scores_["gain"], model.interaction_scores_["gain"], rtol=0.05, atol=0.5
    )


@pytest.mark.parametrize("multi_class", ["softmax", "ovr"])
def test_a_pair_is_a_term_of_every_class(multi_class, tmp_path):
    X, f, rng = table(900)
    X, f = X.drop(columns="nothing"), 1.5 * f
    p = np.exp(log_softmax(np.stack([2 * f, -2 * f, 0 * f]), axis=0))
    y = np.array(["p", "q", "r"])[(np.cumsum(p, axis=0) < rng.random(len(f))).sum(axis=0)]
    model = AdditiveGPClassifier(
        interactions="auto", multi_class=multi_class, class_weight={"r": 1.5}, learner_tol=1.0
    ).fit(X, y)
    assert found(model) == PAIRS
    for each in model.estimators_:
        assert {"a × b", "b × g"} < {name.replace("b × a", "a × b") for name in each.kernels_}
        assert each.interactions_ == model.interactions_
    model.save(tmp_path / "m.zarr")
    again = dsgp.load(tmp_path / "m.zarr")
    assert again.interactions_ == model.interactions_
    pd.testing.assert_frame_equal(again.interaction_scores_, model.interaction_scores_)


def test_counts_that_scatter_more_have_no_pairs_for_that():
    X, _, rng = table(1100)
    mean = np.exp(1.0 + 0.5 * np.sin(X["a"]))
    y = rng.poisson(mean * rng.gamma(1.0, 1.0, len(X)))  # of variance μ + μ²
    model = GeneralizedAdditiveGP("poisson", interactions="auto").fit(X, y)
    assert model.interactions_ == []
    plain = GeneralizedAdditiveGP("poisson").fit(X, y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_learning_with_known_functions_begins_where_it_ended():
    """The same optimum, in fewer modes."""
    X, f, rng = table(600)
    y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(-3 * f)), 1.0, 0.0)
    fit = LaplaceFit.of(AdditiveGPClassifier().get_params(deep=False))
    source = source_of(X[["a", "b", "nothing"]], y)
    some = fit.prepare(source, GivenTerms.of(None, ["a", "b"]).bound(source, True), Clock())
    every = fit.prepare(
        source, GivenTerms.of(None, ["a", "b", "nothing"]).bound(source, True), Clock()
    )
    first = fit_classes(fit, some, 2, "logit", True, Clock()).outcomes
    cold = fit_classes(fit, every, 2, "logit", True, Clock()).outcomes[0]
    warm = fit_classes(fit, every, 2, "logit", True, Clock(), first).outcomes[0]
    assert warm.log_likelihood == pytest.approx(cold.log_likelihood, abs=0.05)
    assert warm.learned.evaluations <= cold.learned.evaluations


def test_a_line_can_become_a_function_that_interacts():
    X, f, rng = table(600)
    y = rng.poisson(np.exp(1 + 2 * f))
    lines = {"a": ["Linear", "Smooth"], "b": "Linear"}
    for model in (
        GeneralizedAdditiveGP("poisson", terms=lines, interactions=2),
        AdditiveGPRegressor(terms=lines, interactions=2),
    ):
        model.fit(X, y)
        assert len(model.interactions_) == 2
        assert any("a" in one and "b" in other for one, other in model.interactions_)


def test_a_pair_that_another_one_explains_is_left_out_again():
    """A strong effect that is hidden shrinks the others, group by group."""
    rng = np.random.default_rng(0)
    n = 2000
    hour, distance = rng.uniform(0, 24, n), rng.gamma(4.0, 1.0, n)
    day = rng.choice(["Fri", "Sat", "Sun"], n)
    busy = pd.Series(day).map({"Fri": 1.0, "Sat": 2.0, "Sun": 0.3})
    minutes = 20 + 3 * busy * np.sin(hour / 24 * 2 * np.pi) + 2 * distance + rng.normal(0, 1, n)
    X = pd.DataFrame({"hour": hour, "day": day, "distance": distance})
    model = AdditiveGPClassifier(interactions="auto").fit(X, minutes > 30)
    assert found(model) == {frozenset(["hour", "day"])}
    assert model.interaction_scores_["chosen"].sum() == 1
    assert "day × distance" not in model.kernels_


def test_what_cannot_be_searched_is_refused():
    X, f, rng = table(60)
    y = rng.poisson(np.exp(f))
    for model in (GeneralizedAdditiveGP("poisson"), AdditiveGPClassifier()):
        for options, match in [
            ({"interactions": "all"}, "must be"),
            ({"interactions": "auto", "learner": None}, "interactions are learned"),
            ({"interactions": [("a", "none")]}, "names 'none'"),
        ]:
            with pytest.raises(ParameterError, match=match):
                model.set_params(learner="marginal").set_params(**options).fit(X, y > 0)
