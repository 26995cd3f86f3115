"""The report in words and tables: the paper's numbers beside ours."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pipelines.paper import published
from pipelines.paper.methods import DEFAULT, METHODS
from pipelines.paper.sets import SETS
from pipelines.reporting import markdown_table

Tables = Mapping[str, pd.DataFrame]

TITLES = {
    "runtime": "Seconds against rows",
    "speedup": "Speedup by columns and threads",
    "comparison": "The seven data sets",
    "pareto": "Seconds against error",
    "class-runtime": "Classification: seconds against rows",
    "classification": "Classification: the four data sets",
    "kronecker": "Grids: seconds of a learning iteration",
    "image": "Grids: an image",
}


def markdown(
    tables: Tables,
    figures: Sequence[str],
    notes: Sequence[str],
    facts: Mapping[str, Any],
    folder: str = "",
) -> str:
    """Write the report.

    Parameters
    ----------
    tables : mapping
        Of ``tables.tables_of``.
    figures : sequence of str
        Files that were drawn.
    notes : sequence of str
        What was left out, and why.
    facts : mapping
        ``command``, ``machine``, ``versions``.
    folder : str
        Before the names of figures.
    """
    versions = ", ".join(f"{name} {text}" for name, text in facts["versions"].items())
    machine = facts["machine"]
    out = [
        f"`{facts['command']}`",
        "",
        f"{machine['processors']} processors, {machine['system']}; {versions}.",
    ]
    for name, title in TITLES.items():
        if name not in tables:
            continue
        out += ["", f"## {title}", ""]
        for figure in _FIGURES.get(name, (name,)):
            if f"{figure}.png" in figures:
                out += [f"![{title}]({folder}{figure}.png)", ""]
        out += _WRITERS[name](tables)
    for title, items in (
        ("Methods", _methods(tables)),
        ("Data", _data(tables)),
        ("Notes", [f"* {note}" for note in notes]),
    ):
        out += ["", f"## {title}", "", *items] if items else []
    return "\n".join(out) + "\n"


_FIGURES = {"pareto": ("pareto-nmse", "pareto-mnlp")}


def number(value: Any, pattern: str = "{:.4f}", spread: Any = None) -> str:
    """A number, with its spread where there is one; a dash where there is none."""
    if value is None or pd.isna(value):
        return "–"
    if isinstance(value, str):
        return value
    text = pattern.format(value)
    if spread is not None and not pd.isna(spread):
        text += f" ± {pattern.format(spread)}"
    return text


def seconds(value: Any) -> str:
    """Seconds in three digits, or whole."""
    if value is None or pd.isna(value):
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _slopes(tables: Tables, figure: str) -> list[str]:
    if "slopes" not in tables:
        return []
    some = tables["slopes"]
    some = some[some["figure"] == figure]
    if some.empty:
        return ["There are too few sizes for a slope."]
    rows = [
        [
            row["label"],
            f"{int(row['from']):,} to {int(row['to']):,}".replace(",", " "),
            number(row["slope"], "{:.2f}"),
            number(row["slope_on_all_rows"], "{:.2f}"),
            number(row["paper"], "{:.2f}"),
        ]
        for row in some.to_dict(orient="records")
    ]
    return markdown_table(
        ["method", "rows", "slope", "slope of learning on all rows", "paper"], rows
    )


def _sizes(tables: Tables, figure: str) -> list[str]:
    some = tables[figure]
    sizes = sorted(some["n"].unique())
    rows = []
    for label, own in some.groupby("label", sort=False):
        by_n = own.set_index("n")["total"]
        rows.append([str(label), *(seconds(by_n.get(n)) for n in sizes)])
    header = ["processor seconds", *(f"{n:,}".replace(",", " ") for n in sizes)]
    return [*markdown_table(header, rows), "", *_slopes(tables, figure)]


def _runtime(tables: Tables) -> list[str]:
    return _sizes(tables, "runtime")


def _class_runtime(tables: Tables) -> list[str]:
    return _sizes(tables, "class-runtime")


def _speedup(tables: Tables) -> list[str]:
    some = tables["speedup"]
    threads = sorted(some["threads"].unique())
    rows = []
    for (data, label), own in some.groupby(["data", "label"], sort=False):
        by_threads = own.set_index("threads")
        cells = [f"{data}, {label}", seconds(by_threads["seconds"].get(1))]
        for count in threads:
            if count not in by_threads.index:
                cells.append("–")
                continue
            row = by_threads.loc[count]
            text = f"{row['speedup']:.3g}"
            cells.append(text if row["measured"] else f"({text})")
        rows.append(cells)
    header = ["data, method", "seconds, 1 thread", *(f"× with {count}" for count in threads)]
    return [
        "Times as fast as a Full-GP in one thread, learning, by the clock. In brackets: predicted.",
        "",
        *markdown_table(header, rows),
    ]


def _comparison(tables: Tables) -> list[str]:
    out = []
    for data, own in tables["comparison"].groupby("data", sort=False):
        rows = [
            [
                row.label,
                str(row.runs),
                number(row.nmse, "{:.4f}", row.nmse_spread),
                number(row.mnlp, "{:.3f}", row.mnlp_spread),
                number(row.coverage, "{:.1%}"),
                seconds(row.learn),
                seconds(row.predict),
                f"{row.peak_memory_mb:.0f}",
            ]
            for row in own.itertuples()
        ]
        first = own.iloc[0]
        out += [
            f"**{data}**: {first['n']} training rows, {first['n_test']} test rows, "
            f"{first['n_columns']} columns.",
            "",
            *markdown_table(
                ["method", "runs", "NMSE", "MNLP", "95 % cover", "learning s", "prediction s",
                 "peak MB"],
                rows,
            ),
            "",
        ]  # fmt: skip
    return out[:-1]


def _pareto(tables: Tables) -> list[str]:
    rows = [
        [
            row.label,
            str(row.nmse),
            str(row.mnlp),
            *(
                ("–", "–")
                if METHODS["regression"][row.method].kind == DEFAULT
                else (str(row.nmse_paper), str(row.mnlp_paper))
            ),
            number(row.paper, "{:.0f}"),
        ]
        for row in tables["pareto"].itertuples()
    ]
    n_sets = int(tables["pareto"]["sets"].max())
    out = [
        f"On how many of {n_sets} data sets a method is on the frontier of seconds and error: no "
        "other method is at least as fast and as accurate, and better in one of them. (The paper's "
        "frontier is the convex hull, which has fewer methods, if any.)",
        "",
        *markdown_table(
            ["method", "NMSE", "MNLP", "NMSE, without our defaults", "MNLP, without our defaults",
             "paper"],
            rows,
        ),
    ]  # fmt: skip
    if "verdicts" in tables:
        rows = [
            [row.data, row.measure.upper(), row.efficient or "none", row.dominated or "none"]
            for row in tables["verdicts"].itertuples()
        ]
        out += [
            "",
            *markdown_table(["data", "plane", "defaults on the frontier", "dominated"], rows),
        ]
    return out


def _classification(tables: Tables) -> list[str]:
    out = []
    for data, own in tables["classification"].groupby("data", sort=False):
        rows = [
            [
                row.label,
                number(row.runs, "{:.0f}"),
                number(row.error_rate, "{:.4f}", row.error_rate_spread),
                # Of a method that ran, it is absent where a label had probability 0.
                "∞"
                if pd.isna(row.mnll) and not pd.isna(row.error_rate)
                else number(row.mnll, "{:.4f}", row.mnll_spread),
                seconds(row.learn),
                seconds(row.predict),
                number(row.paper_error_rate),
                number(row.paper_mnll),
                seconds(row.paper_seconds),
            ]
            for row in own.itertuples()
        ]
        known = own["n"].dropna()
        out += [
            f"**{data}**: {known.iloc[0]:.0f} training rows, "
            f"{own['n_test'].dropna().iloc[0]:.0f} test rows. The paper: "
            f"{SETS[str(data)].published}.",
            "",
            *markdown_table(
                ["method", "runs", "error rate", "MNLL", "learning s", "prediction s",
                 "error rate, paper", "MNLL, paper", "seconds, paper"],
                rows,
            ),
            "",
        ] if len(known) else []  # fmt: skip
    return out[:-1]


def _kronecker(tables: Tables) -> list[str]:
    return _slopes(tables, "kronecker")


def _image(tables: Tables) -> list[str]:
    rows = []
    for row in tables["image"].to_dict(orient="records"):
        learn, again = published.IMAGE_SECONDS[row["kind"]]
        ours = row["method"] == "GridGP" and row["case"] == "as it is"
        rows.append(
            [
                f"{row['case']}, {row['kind']}: {row['method']}",
                number(row.get("psnr"), "{:.1f}"),
                number(row.get("ssim"), "{:.2f}"),
                number(row.get("coverage"), "{:.1%}"),
                seconds(row.get("learn_seconds")),
                seconds(row.get("reconstruct_seconds")),
                f"{learn:g}" if ours else "–",
                f"{again:g}" if ours else "–",
            ]
        )
    header = [
        "image, task, method", "PSNR dB", "SSIM", "95 % cover", "learning s", "reconstruction s",
        "learning s, paper", "reconstruction s, paper",
    ]  # fmt: skip
    return markdown_table(header, rows)


_WRITERS = {
    "runtime": _runtime,
    "speedup": _speedup,
    "comparison": _comparison,
    "pareto": _pareto,
    "class-runtime": _class_runtime,
    "classification": _classification,
    "kronecker": _kronecker,
    "image": _image,
}


def _used(tables: Tables, task: str) -> set[str]:
    names = (
        ("comparison", "runtime") if task == "regression" else ("classification", "class-runtime")
    )
    return {
        method
        for name in names
        if name in tables
        for method in tables[name]["method"][tables[name]["n"].notna()]
    }


def _methods(tables: Tables) -> list[str]:
    return [
        f"* **{method.label}** ({task}): {method.what}."
        for task, methods in METHODS.items()
        for name, method in methods.items()
        if name in _used(tables, task)
    ]


def _data(tables: Tables) -> list[str]:
    names = [
        name
        for table_name in ("comparison", "classification")
        if table_name in tables
        for name in dict.fromkeys(tables[table_name]["data"][tables[table_name]["n"].notna()])
    ]
    return [f"* {name}: {' '.join(filter(None, _remarks(name)))}" for name in names]


def _remarks(name: str) -> list[str]:
    return [f"The paper has {SETS[name].published}.", SETS[name].remark]
