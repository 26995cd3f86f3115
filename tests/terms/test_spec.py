"""Terms as users write them: text, settings, names, and what does not fit its columns."""

import numpy as np
import pandas as pd
import pytest

from dsgp import AdditiveGPRegressor
from dsgp.errors import DataError, ParameterError
from dsgp.kernels import Independent, Matern32, Matern52, Periodic, RationalQuadratic
from dsgp.rows.sources.kinds import NUMBER, Categories, Dates
from dsgp.terms import TERMS, Default, Levels, Linear, Smooth, parse_term, term_of
from dsgp.terms.bound import BoundTerm
from dsgp.terms.inputs import PARTS, Input, day_of_year
from dsgp.terms.spec import from_settings

COLUMNS = {"x": NUMBER, "z": NUMBER, "g": Categories(("a", "b")), "t": Dates()}


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("Levels(day, part=weekday, name=week)", Levels("day", part="weekday", name="week")),
        ("x", Default("x")),
        ("x: Linear", Linear("x")),
        ("color: Levels", Levels("color")),
        ("color: Levels(missing=level, variance=2)", Levels("color", missing="level", variance=2)),
        ("t: Levels(part=weekday)", Levels("t", part="weekday")),
        ("carat: Smooth(by=clarity)", Smooth("carat", by="clarity")),
        ("carat: Smooth(Matern32(2.0), by=clarity)", Smooth("carat", Matern32(2.0), "clarity")),
        ("x: Smooth(kernel=Matern32)", Smooth("x", Matern32())),
        ("x: Smooth(Matern32)", Smooth("x", Matern32())),
        ("t: Periodic(year)", Smooth("t", Periodic("year"))),
        ("x: Matern32(lengthscale=2)", Smooth("x", Matern32(2.0))),
        ("x: Matern52() + Periodic(7) * RationalQuadratic",
         Smooth("x", Matern52() + Periodic(7) * RationalQuadratic())),
        ("'a: b' : Linear(variance=0.5)", Linear("a: b", variance=0.5)),
        ('"two words":Levels', Levels("two words")),
    ],
)  # fmt: skip
def test_text_and_settings(text, term):
    assert parse_term(text) == term
    assert from_settings(term.to_settings()) == term


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a term"),
        ("x: ", "is not a term"),
        ("x: Level", "there is no term or kernel 'Level'"),
        ("x: Levels(", "is not a term or a kernel"),
        ("x: Levels(colour=red)", "colour"),
        ("x: __import__('os').system('true')", "is not a term or a kernel"),
        ("x: open('/etc/passwd')", "there is no term or kernel 'open'"),
        ("x: Levels if 1 else 2", "is not a term or a kernel"),
        ("x: Matern32 - Matern52", "is not a term or a kernel"),
        ("x: Smooth(by=g, by=h)", "has by= more than once"),
        ("x: Matern32(lengthscale=1, lengthscale=2)", "has lengthscale= more than once"),
        ("x: Smooth(Matern32, kernel=Matern52)", "has two kernels"),
        ("x: Sum", "there is no term or kernel 'Sum'"),
        ("x: Custom", "there is no term or kernel 'Custom'"),
        ("x: Linear(by=g)", "unexpected keyword argument 'by'; Linear takes column"),
        ("x: Periodic", "missing a required argument: 'period'; Periodic takes period"),
        ("x: Levels + Matern32", "combine kernels"),
        ("x: Matern32 + 1", "combine kernels"),
        ("x: Levels(part=-weekday)", "is not a term or a kernel"),
        ("x: Matern32(lengthscale=long)", "lengthscale"),
        ("x: 3", "a kernel must be"),
        ("x: Matern32(lengthscale=-1)", "lengthscale must be a number"),
        ("x: Levels(part=century)", "part must be one of"),
        ("x: Smooth(by=x)", "names its own column 'x'.*use Smooth\\('x'\\) without by"),
        ("x: Smooth(Matern32, by=x)", "names its own column 'x'"),
        ("g: Levels(by=g)", "names its own column 'g'.*use Levels\\('g'\\) without by"),
        ("x: Smooth(by=2)", "by must be the name of one column, got 2"),
    ],
)
def test_text_that_is_none(text, message):
    with pytest.raises(ParameterError, match=message):
        parse_term(text)


def test_names_of_terms():
    assert [
        own.label
        for own in (
            Smooth("x"),
            Smooth("x", by="g"),
            Smooth("t", Periodic("year")),
            Smooth("x", Periodic(3.0)),
            Levels("t", part="hour"),
            Levels("g", by="x"),
            Linear("x"),
            Smooth("x", name="mine"),
        )
    ] == ["x", "x by g", "t (year)", "x (season)", "t (hour)", "g times x", "x (line)", "mine"]
    assert repr(Smooth("x", by="g")) == "Smooth('x', by='g')"
    assert set(TERMS) >= {"Default", "Smooth", "Levels", "Linear"}


def test_what_terms_read_of_their_columns():
    default = Matern52()
    curve = Smooth("x", by="g").bind(COLUMNS, default)
    assert (curve.family, curve.group, curve.value) == ("axis", Input("g"), Input("x"))
    assert Smooth("x", by="z").bind(COLUMNS, default).multiplier == Input("z")
    assert Smooth("t", Periodic("year")).bind(COLUMNS, default).kernel == Periodic(366.0)
    effect = Levels("g", by="x", variance=2.0).bind(COLUMNS, default)
    assert effect.kernel == Independent(2.0)
    assert effect.columns == ("g", "x")
    assert Default("g").bind(COLUMNS, default) == Levels("g").bind(COLUMNS, default)
    assert Default("t").bind(COLUMNS, default) == Smooth("t").bind(COLUMNS, default)
    for bound in (curve, effect, Linear("t").bind(COLUMNS, default)):
        again = BoundTerm.from_settings(bound.name, bound.kernel, bound.to_settings())
        assert again == bound


@pytest.mark.parametrize(
    ("term", "error", "message"),
    [
        (Smooth("g"), DataError, "holds categories.*use Levels"),
        (Linear("g"), DataError, "holds categories"),
        (Smooth("x", Periodic("year")), ParameterError, "is for dates"),
        (Smooth("x", by="t"), DataError, "column of dates"),
        (Levels("t"), ParameterError, "which part of them"),
        (Levels("x", part="month"), ParameterError, "holds no dates"),
        (Levels("g", by="t"), DataError, "must hold numbers"),
        (Smooth(), ParameterError, "names no column"),
    ],
)
def test_what_does_not_fit_its_columns(term, error, message):
    with pytest.raises(error, match=message):
        term.bind(COLUMNS, Matern52())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Smooth("x", by="x"),
        lambda: Smooth(by="x").of_column("x"),
        lambda: Smooth("x", Matern52() * Periodic(7.0), by="x"),
        lambda: Levels("x", by="x"),
        lambda: Levels("t", part="weekday", by="t"),
        lambda: from_settings({"term": "Smooth", "column": "x", "by": "x"}),
        lambda: AdditiveGPRegressor(terms={"x": Smooth(by="x")}).fit(np.eye(3)[:, :1], np.ones(3)),
    ],
)
def test_a_column_is_not_grouped_or_multiplied_by_itself(make):
    with pytest.raises(ParameterError, match=r"by names its own column .[xt]"):
        make()


def test_names_of_by_are_text():
    for make in (Smooth, Levels):
        with pytest.raises(ParameterError, match="by must be the name of one column"):
            make("x", by=["g", "h"])


def test_a_season_may_grow_and_terms_of_one_column_stay_side_by_side():
    rng = np.random.default_rng(0)
    x = np.arange(400.0)
    season = np.sin(2 * np.pi * x / 12)
    y = 0.01 * x * season + 0.3 * rng.standard_normal(400)
    X = pd.DataFrame({"x": x})
    growing = AdditiveGPRegressor(terms=[Smooth("x", Periodic(12), by="x")]).fit(X, y)
    assert np.sqrt(np.mean((growing.predict(X) - 0.01 * x * season) ** 2)) < 0.1
    whole = pd.DataFrame({"x": rng.integers(8, size=400).astype(float)})
    beside = AdditiveGPRegressor(terms=[Linear("x"), Smooth("x"), Levels("x", name="levels")]).fit(
        whole, y
    )
    assert len(beside.terms_) == 3


def test_terms_of_columns_and_of_others():
    assert term_of(Matern32(), "x") == Smooth("x", Matern32())
    assert term_of("Levels", "x") == Levels("x")
    assert term_of(Levels(), "x") == Levels("x")
    with pytest.raises(ParameterError, match="but it names 'z'"):
        term_of(Levels("z"), "x")
    with pytest.raises(ParameterError, match="did you forget the brackets"):
        term_of(Levels, "x")


def test_parts_of_dates_are_those_of_pandas():
    times = pd.Series(pd.date_range("1899-12-25", "2104-03-02", periods=4001))
    days = times.astype("datetime64[ns]").to_numpy().astype(np.int64) / 86_400e9
    expected = {
        "weekday": times.dt.day_of_week,
        "month": times.dt.month,
        "quarter": times.dt.quarter,
        "year": times.dt.year,
        "day": times.dt.day,
        "hour": times.dt.hour,
    }
    assert set(expected) == set(PARTS)
    for part, values in expected.items():
        np.testing.assert_array_equal(PARTS[part](days), values, err_msg=part)
        assert np.isnan(PARTS[part](np.array([np.nan]))).all()
    # A date has the same place in every year, as in a leap year.
    place = np.floor(day_of_year(days))
    leap = pd.to_datetime(
        {"year": 2000, "month": times.dt.month, "day": times.dt.day}
    ).dt.day_of_year
    np.testing.assert_array_equal(place, leap - 1)
    assert Input("t", part="weekday").label(0.0) == "Monday"
    assert Input("t", part="month").label(12.0) == "December"
    assert Input("g").label(1.0, ("a", "b")) == "b"
    assert Input("g").label(-5.0, ("a", "b")) == "(never seen)"
