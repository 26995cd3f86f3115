"""Pages in a real browser, at the widths of a desktop and of a phone, without a network."""

import asyncio
import base64
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from dsgp import AdditiveGPRegressor, GridGP, Levels, Smooth, Tensor
from dsgp.kernels import Matern32
from tests.report import browser

pytest.importorskip("dsgp.report")
pytestmark = pytest.mark.skipif(browser.EXECUTABLE is None, reason="needs Chromium")

# Names that would be code if they were taken for it.
NASTY = '<img src=x onerror=alert(1)> \\"}); alert(2); //'
_SECONDS = 2.0  # of the processor, to draw what is seen first


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    random = np.random.default_rng(0)
    n = 300
    X = pd.DataFrame(
        {
            NASTY: random.uniform(-2, 2, n),
            "b": random.uniform(0, 9, n),
            "day": pd.Timestamp("2020-02-01") + pd.to_timedelta(random.integers(0, 900, n), "D"),
            "level": random.choice([f"<i>{k}</i>" for k in range(40)], n),
        }
    )
    y = np.sin(X[NASTY]) + 0.1 * X["b"] * X[NASTY] + 0.2 * random.standard_normal(n)
    terms = [Smooth(NASTY), Smooth("b"), Smooth("day"), Levels("level"), Tensor(NASTY, "b")]
    model = AdditiveGPRegressor(terms=terms).fit(X, y)
    path = tmp_path_factory.mktemp("page") / "page.html"
    model.report(path, X, y, target="price <b>")
    return path.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with browser.started(tmp_path_factory.mktemp("profile")) as address:
        yield address


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_is_drawn_soon_without_a_network_or_a_complaint(url, address, width):
    async def look(page):
        await page.visit(url)
        seconds = await page.seconds()
        widest = await page.run("document.documentElement.scrollWidth")
        drawn = await page.run(
            """(async () => {
                for (const chart of document.querySelectorAll(".chart")) {
                    chart.scrollIntoView();
                    while (!chart.classList.contains("drawn"))
                        await new Promise((resolve) => setTimeout(resolve, 10));
                }
                return [...document.querySelectorAll(".chart")].map((chart) =>
                    [chart.clientWidth, chart.querySelector("svg").getBoundingClientRect().width]);
            })()"""
        )
        return seconds, widest, drawn, page.complaints()

    seconds, widest, drawn, complaints = browser.browse(address, width, 844, look)
    assert complaints == []
    assert seconds < _SECONDS
    assert widest <= width
    assert len(drawn) == 8  # three of accuracy and importance, five of terms
    assert all(abs(of_chart - of_svg) <= 2 for of_chart, of_svg in drawn)


def test_a_pointer_shows_values_as_text(url, address):
    async def point(page):
        await page.visit(url)
        place = await page.run(
            f"""(async () => {{
                const cards = [...document.querySelectorAll(".card.term")];
                const card = cards.find((card) => card.dataset.name === {NASTY!r});
                // All of them, as charts that are drawn later may move those below.
                for (const one of document.querySelectorAll(".chart")) {{
                    one.scrollIntoView();
                    while (!one.classList.contains("drawn"))
                        await new Promise((resolve) => setTimeout(resolve, 10));
                }}
                card.scrollIntoView({{ block: "center", behavior: "instant" }});
                const chart = card.querySelector(".chart");
                const box = chart.getBoundingClientRect();
                return [box.left + box.width / 2, box.top + box.height / 2];
            }})()"""
        )
        for step in range(40):
            await page.send(
                "Input.dispatchMouseEvent", type="mouseMoved", x=place[0] + 2 * step, y=place[1]
            )
            await asyncio.sleep(0.05)
            shown = await page.run("document.getElementById('tip').innerText")
            if shown:
                break
        elements = await page.run("document.querySelectorAll('#tip img, #tip b').length")
        return shown, elements, page.complaints()

    shown, elements, complaints = browser.browse(address, 1280, 900, point)
    assert complaints == []
    assert elements == 0
    assert NASTY.split("}")[0] in shown
    assert "effect on price <b>" in shown
    assert re.search(r"95% band from\s+[−+\d]", shown)


def test_terms_and_levels_are_found_by_their_names(url, address):
    async def find(page):
        await page.visit(url)
        return await page.run(
            """(() => {
                const type = (input, text) => {
                    input.value = text;
                    input.dispatchEvent(new Event("input"));
                };
                const seen = (items) => [...items].filter((item) => !item.hidden).length;
                type(document.querySelector(".find"), "LEV");
                type(document.querySelector(".find-level"), "<i>39");
                return [seen(document.querySelectorAll(".card.term")),
                        seen(document.querySelectorAll(".levels tbody tr"))];
            })()"""
        )

    assert browser.browse(address, 1280, 900, find) == [1, 1]


def test_a_printed_page_has_all_pictures_and_no_controls(url, address):
    async def print_it(page):
        await page.visit(url)
        await page.send("Emulation.setEmulatedMedia", media="print")
        shown = await page.run(
            """(() => {
                const shows = (one) => getComputedStyle(one).display !== "none";
                return [[...document.querySelectorAll(".chart img")].every(shows),
                        [...document.querySelectorAll(".live, nav, .controls")].some(shows)];
            })()"""
        )
        pdf = await page.send("Page.printToPDF")
        return shown, base64.b64decode(pdf["data"])

    shown, pdf = browser.browse(address, 1280, 900, print_it)
    assert shown == [True, False]
    assert pdf.startswith(b"%PDF")


# ---------------------------------------------------------------------- fields


@pytest.fixture(scope="module")
def field():
    random = np.random.default_rng(0)
    days = xr.date_range("2024-06-01", periods=4)
    grid = {"time": days, NASTY: np.arange(0.0, -9.0, -1.0), "x": np.arange(12.0)}
    values = random.standard_normal((4, 9, 12)).cumsum(2)
    da = xr.DataArray(values, grid, ("time", NASTY, "x"), "<b>sst</b>")
    da = da.where(random.uniform(size=values.shape) > 0.2)
    kernels = {"time": Matern32(3.0, 4.0), NASTY: Matern32(2.0), "x": Matern32(3.0)}
    return GridGP(kernels, 0.1, learner=None).fit(da), da


@pytest.fixture(scope="module")
def field_url(field, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "field.html"
    field[0].report(path, field[1].fillna(0.0))
    return path.as_uri()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_a_field_is_drawn_soon_without_a_complaint(field_url, address, width):
    async def look(page):
        await page.visit(field_url)
        seconds = await page.seconds()
        sizes = await page.run(
            """[...document.querySelectorAll(".map img")].map((image) =>
                [image.complete, image.naturalWidth, image.getBoundingClientRect().width])"""
        )
        widest = await page.run("document.documentElement.scrollWidth")
        return seconds, sizes, widest, page.complaints()

    seconds, sizes, widest, complaints = browser.browse(address, width, 844, look)
    assert complaints == []
    assert seconds < _SECONDS
    assert widest <= width
    assert len(sizes) == 9  # three maps of three days
    assert all(complete and natural > 0 for complete, natural, _ in sizes)
    assert all(300 < shown <= 480 for *_, shown in sizes)


def test_a_pointer_on_a_map_shows_the_numbers_of_the_cell(field, field_url, address):
    async def point(page):
        await page.visit(field_url)
        shown = []
        for row, column in ((0, 0), (2, 7), (8, 11)):
            place = await page.run(
                f"""(() => {{
                    const figure = document.querySelectorAll(".map")[1];
                    figure.scrollIntoView({{ block: "center", behavior: "instant" }});
                    const map = JSON.parse(
                        document.getElementById("maps-numbers").textContent).maps[figure.id];
                    const box = figure.querySelector("img").getBoundingClientRect();
                    const x = map.left + (map.right - map.left) * ({column} + 0.5) / 12;
                    const y = map.top + (map.bottom - map.top) * ({row} + 0.5) / 9;
                    return [box.left + x * box.width, box.top + y * box.height];
                }})()"""
            )
            await page.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
            shown.append(await page.run("document.getElementById('tip').innerText"))
        elements = await page.run("document.querySelectorAll('#tip img, #tip b').length")
        await page.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        hidden = await page.run("getComputedStyle(document.getElementById('tip')).display")
        return shown, elements, hidden, page.complaints()

    shown, elements, hidden, complaints = browser.browse(address, 1280, 900, point)
    assert complaints == []
    assert elements == 0
    assert hidden == "none"
    posterior = field[0].posterior().isel(time=0)
    for text, (row, column) in zip(shown, ((0, 0), (2, 7), (8, 11)), strict=True):
        told = dict(line.split("\t") for line in text.replace("−", "-").strip().split("\n"))
        assert told[NASTY] == str(-row)
        assert told["x"] == str(column)
        cell = posterior.isel({NASTY: row, "x": column})
        assert float(told["posterior mean"]) == pytest.approx(float(cell["mean"]), abs=2e-3)
        assert float(told["standard deviation"]) == pytest.approx(float(cell["std"]), abs=2e-3)
