"""Effects of terms in a summary, whether they are zero, and how notebooks show them."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from dsgp import (
    AdditiveGPClassifier,
    AdditiveGPRegressor,
    GeneralizedAdditiveGP,
    Levels,
    Linear,
    Smooth,
    component_bands,
    load,
)
from dsgp.models.effects import effects_of

RANDOM = np.random.default_rng(7)
N = 150
X = pd.DataFrame(
    {
        "strong": RANDOM.uniform(-2, 2, N),
        "weak": RANDOM.uniform(-2, 2, N),
        "nothing": RANDOM.uniform(-2, 2, N),
        "g": RANDOM.choice(list("uvw"), N),
    }
)
Y = (
    np.sin(2 * X["strong"])
    + 0.12 * X["weak"]
    + 0.4 * (X["g"] == "u")
    + 0.5 * RANDOM.standard_normal(N)
)


@pytest.fixture(scope="module")
def model():
    return AdditiveGPRegressor(bins=None).fit(X, Y)


def test_effects_are_the_ends_of_components(model):
    of_rows = model.components(X)["mean"]
    effects = effects_of(model.model_.latent)
    np.testing.assert_allclose([e.lowest for e in effects], of_rows.min("row"), atol=1e-9)
    np.testing.assert_allclose([e.highest for e in effects], of_rows.max("row"), atol=1e-9)


def test_p_values_are_shares_of_exact_draws_beyond_the_band_that_holds_zero():
    weaker = Y - 0.07 * X["weak"] - 0.25 * (X["g"] == "u")
    model = AdditiveGPRegressor(bins=None).fit(X, weaker)
    n = 2000
    parts = model.components(X)
    drawn = model.sample_components(X, n, random_state=0)
    std = parts["std"]
    apart = (abs(parts["mean"]) / std).max("row")
    farthest = (abs(drawn - parts["mean"]) / std).max("row")
    expected = (farthest >= apart).mean("sample").to_numpy()
    found = np.array([e.p_value for e in effects_of(model.model_.latent, n)])
    error = 4 * np.sqrt(np.maximum(expected * (1 - expected), 1 / n) * 2 / n)
    np.testing.assert_array_less(np.abs(found - expected), error + 0.005)
    assert ((found > 0.01) & (found < 0.99)).any()  # not only certain ones


def test_a_term_differs_from_zero_where_its_whole_band_leaves_it(model):
    effects = dict(zip(model.model_.latent.names, effects_of(model.model_.latent), strict=True))
    bands = component_bands(model, X, 0.95, random_state=1)
    leaves = ((bands["low"] > 0) | (bands["high"] < 0)).any("row").to_series()
    for name, effect in effects.items():
        if abs(effect.p_value - 0.05) > 0.02:  # draws are finitely many
            assert leaves[name] == (effect.verdict == "yes")
    assert effects["strong"].verdict == "yes"
    assert effects["nothing"].verdict == "unclear"


def test_zero_functions_seldom_differ_from_zero():
    p_values = []
    for seed in range(50):
        random = np.random.default_rng(seed)
        table = random.uniform(-1, 1, (60, 2))
        y = np.sin(3 * table[:, 0]) + 0.5 * random.standard_normal(60)
        latent = AdditiveGPRegressor().fit(table, y).model_.latent
        p_values.append(effects_of(latent, 400)[1].p_value)
    assert np.mean(np.array(p_values) < 0.05) <= 0.14  # at 5 % more than that is seen once in 300


def test_lines_and_coefficients_are_shown_by_their_slopes():
    table = X.assign(dose=RANDOM.uniform(0, 5, N))
    y = 2 * table["weak"] + table["dose"] * (1 + np.sin(table["strong"]))
    terms = [Linear("weak"), Smooth("strong", by="dose"), Levels("g")]
    model = AdditiveGPRegressor(terms=terms).fit(table, y + 0.1 * RANDOM.standard_normal(N))
    line, coefficient, _ = effects_of(model.model_.latent)
    assert line.highest == pytest.approx(2 * 2 * table["weak"].std(), rel=0.05)
    assert line.lowest == -line.highest
    assert coefficient.lowest == pytest.approx(0.09, abs=0.3)
    assert coefficient.highest == pytest.approx(1.91, abs=0.3)
    assert line.verdict == coefficient.verdict == "yes"


@pytest.mark.parametrize(
    "made",
    [
        AdditiveGPRegressor(remainder=True),
        AdditiveGPRegressor(method="gibbs", n_draws=20, n_warmup=20, n_chains=1, random_state=0),
        GeneralizedAdditiveGP("student_t"),
    ],
)
@pytest.mark.filterwarnings("ignore::dsgp.errors.ConvergenceWarning")
def test_every_kind_of_model_has_them_in_its_summary(made, tmp_path):
    made.fit(X, Y)
    text = made.summary()
    row = next(line for line in text.splitlines() if line.startswith("strong"))
    assert re.search(r"-\d[\d.]* to \+\d[\d.]* +<0\.001 +yes", row)
    made.save(tmp_path / "m.zarr")
    assert load(tmp_path / "m.zarr").summary() == text
    if made.get_params().get("remainder"):
        last = next(line for line in text.splitlines() if line.startswith("remainder "))
        assert "–" in last


def test_notebooks_show_a_diagram_and_below_it_the_summary(model):
    unfitted = AdditiveGPRegressor()
    assert "sk-" in unfitted._repr_html_()
    assert "<th>edf</th>" not in unfitted._repr_html_()
    for shown in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "sk-" in shown
        assert shown.index("sk-") < shown.index("<th>edf</th>")
        assert ">strong</th>" in shown
    assert model._repr_mimebundle_()["text/plain"] == repr(model)
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]


def test_summaries_are_text_and_tables_with_names_escaped():
    table = X[["strong"]].rename(columns={"strong": "<b>a</b>"})
    summary = AdditiveGPRegressor().fit(table, Y).summary()
    assert "<b>a</b>" in summary
    assert "<b>a</b>" not in summary._repr_html_()
    assert "&lt;b&gt;a&lt;/b&gt;" in summary._repr_html_()
    again = pickle.loads(pickle.dumps(summary))
    assert again == summary
    assert again.html == summary.html
    labels = np.array(["<p>", "q", "r"])[RANDOM.integers(0, 3, N)]
    shown = AdditiveGPClassifier().fit(table, labels).summary()
    assert shown.count("class '") == 3
    assert "class '<p>'" not in shown._repr_html_()
    assert shown._repr_html_().count("<table>") == 3


def test_columns_of_a_summary_have_one_format_and_many_terms_are_sorted():
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.uniform(0, 1, (80, 22)), columns=[f"c{k}" for k in range(22)])
    table["c5"] *= 1e5
    y = 3e5 * table["c9"] + 4 * table["c5"] + 1e3 * random.standard_normal(80)
    known = Linear("c9"), Linear("c5"), *(Linear(f"c{k}") for k in range(22) if k not in (5, 9))
    model = AdditiveGPRegressor(terms=list(known)).fit(table[sorted(table)], y)
    assert str(model.summary()).splitlines()[0].endswith("22 terms; those that vary most first")
    lines = str(model.summary()).split("\n\n")[1].splitlines()[2:]
    shares = [float(line.split("%")[0].split()[-1]) for line in lines]
    assert shares == sorted(shares, reverse=True)
    assert {line.split()[0] for line in lines[:2]} == {"c5", "c9"}
    effects = [re.search(r"[-+]\S+ to \S+", line)[0] for line in lines]
    assert all(re.fullmatch(r"-[\d,]+ to \+[\d,]+", effect) for effect in effects)
    few = AdditiveGPRegressor(terms=list(known[:3])).fit(table[["c0", "c5", "c9"]], y)
    heading, table_of_terms, *_ = str(few.summary()).split("\n\n")
    assert heading.endswith("3 terms")
    names = [line.split()[0] for line in table_of_terms.splitlines()[2:]]
    assert names == [term.name.split()[0] for term in few.terms_]


def test_a_coefficient_has_a_format_of_its_own():
    random = np.random.default_rng(0)
    table = pd.DataFrame({"x": random.uniform(0, 1, 200), "n": random.uniform(0, 1e7, 200)})
    y = 1e4 * np.sin(6 * table["x"]) + table["n"] * 1e-3 * table["x"] + random.normal(0, 99, 200)
    model = AdditiveGPRegressor(terms=["x: Smooth", Smooth("x", by="n")]).fit(table, y)
    of_x, of_n = (line for line in str(model.summary()).splitlines() if " to +" in line)
    assert re.search(r"-\d{1,2},\d{3} to \+\d{1,2},\d{3}", of_x)
    assert re.search(r"to \+0\.00\d+", of_n)
