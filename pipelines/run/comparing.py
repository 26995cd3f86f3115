"""The stage ``report``: models side by side, as a table, a picture and JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter

import dsgp
from dsgp.plotting.style import ACCENT, GREY, INK, frame, write_below
from pipelines.reporting import (
    DPI,
    describe_model,
    draw_model,
    draw_predictions,
    environment,
    write_report,
)
from pipelines.run.chain import Work
from pipelines.run.encoding import Encoded
from pipelines.run.evaluating import METRICS, PREDICTIONS
from pipelines.run.fitting import MODEL
from pipelines.run.folders import manifest_of, read_json
from pipelines.run.measures import (
    DRAWN,
    FROM_ZERO,
    LABELS,
    SHARES,
    SPELT_OUT,
    best_of,
    formatted,
)

PIPELINE = "run"
FITS = ("additive", "pursuit", "scoring")
# Of axes: distance from the probability of the intervals, and nats, that are shown at least.
_COVERAGE, _APART = 0.05, 0.1


def report(
    work: Work,
    *,
    name: str,
    models: Mapping[str, list[str]],
    figures: bool,
    level: float,
    config: Mapping[str, Any],
) -> None:
    """Write report.json, report.md, comparison.csv and, if asked for, the pictures."""
    encoded = Encoded.of(work.needs["encode"])
    entries = {
        model: _entry({stage: work.needs[f"{model}/{stage}"] for stage in stages})
        for model, stages in models.items()
    }
    table = comparison(entries)
    table.to_csv(work.folder / "comparison.csv", index_label="model")
    facts = {
        "name": encoded.facts["name"],
        "task": encoded.task,
        "n_train": encoded.facts["n_train"],
        "n_test": encoded.facts["n_test"],
        "n_left_out": encoded.facts["n_left_out"],
        "columns": encoded.inputs,
        "target": encoded.target,
        "classes": encoded.facts["classes"],
        "numbers": encoded.design.descriptions(),
    }
    (work.folder / "report.md").write_text(markdown(name, facts, entries), encoding="utf-8")
    if figures:
        with work.clock.stage("plot"):
            if len(models) > 1:
                draw_comparison(table, encoded.task, level).savefig(
                    work.folder / "comparison.png", dpi=DPI
                )
            for model, stages in models.items():
                _draw_one(work, model, stages, encoded, level)
    write_report(
        work.folder,
        PIPELINE,
        {
            "name": name,
            "data": facts,
            "models": entries,
            "versions": environment(),
            "config": config,
        },
    )


def _entry(folders: Mapping[str, Path]) -> dict[str, Any]:
    """What is reported of a model: measures, seconds of each stage, and what was fitted."""
    manifests = {stage: manifest_of(folder) or {} for stage, folder in folders.items()}
    fitted = {
        stage: describe_model(dsgp.load(folder / MODEL))
        for stage, folder in folders.items()
        if stage in FITS
    }
    fits = [manifest["parts"].get("fit", 0.0) for manifest in manifests.values()]
    return {
        "stages": list(folders),
        "metrics": read_json(folders["evaluation"] / METRICS),
        "fit_seconds": sum(fits),
        "predict_seconds": sum(
            manifest["parts"].get("predict", 0.0) for manifest in manifests.values()
        ),
        "seconds": {stage: manifest["seconds"] for stage, manifest in manifests.items()},
        "converged": all(stage["converged"] for stage in fitted.values()) if fitted else None,
        "warnings": {
            stage: manifest["warnings"]
            for stage, manifest in manifests.items()
            if manifest["warnings"]
        },
        "fitted": fitted,
    }


def comparison(entries: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """One row per model: its measures, and the seconds of fit and prediction."""
    return pd.DataFrame(
        {
            model: {
                **entry["metrics"],
                "fit_seconds": entry["fit_seconds"],
                "predict_seconds": entry["predict_seconds"],
            }
            for model, entry in entries.items()
        }
    ).T.astype(np.float64)


def table_lines(entries: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the comparison; a star marks the best of a column."""
    names = [name for name in LABELS if any(name in entry["metrics"] for entry in entries.values())]
    best = {
        name: best_of(name, {model: e["metrics"].get(name) for model, e in entries.items()})
        for name in names
    }
    rows = []
    for model, entry in entries.items():
        cells = []
        for name in names:
            cell = formatted(name, entry["metrics"].get(name))
            cells.append(f"{cell} *" if model in best[name] else cell)
        converged = {True: "yes", False: "NO", None: ""}[entry["converged"]]
        rows.append([model, *cells, f"{entry['fit_seconds']:.1f}", converged])
    return ["model", *(LABELS[name] for name in names), "fit s", "converged"], rows


def markdown(name: str, facts: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> str:
    """The report for people."""
    header, rows = table_lines(entries)
    left_out = facts["n_left_out"]
    lines = [
        f"# {name}",
        "",
        f"{facts['name']}: {facts['n_train']:,} rows to train on, {facts['n_test']:,} to test on, "
        f"{len(facts['columns'])} columns, target {facts['target']} ({facts['task']})."
        + (f" {left_out:,} rows with a missing value are left out." if left_out else ""),
        "",
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    if len(rows) > 1:
        lines += ["", "\\* best of the models compared, or within a thousandth of the best."]
    if facts["numbers"]:
        lines += [
            "",
            "Baselines read numbers only, in place of text and dates:",
            "",
        ]
        lines += [f"* {line}" for line in facts["numbers"]]
    warned = [
        f"* {model}, {stage}: {message}"
        for model, entry in entries.items()
        for stage, messages in entry["warnings"].items()
        for message in messages
    ]
    if warned:
        lines += ["", "Warnings:", "", *warned]
    return "\n".join(lines) + "\n"


def draw_comparison(table: pd.DataFrame, task: str, level: float) -> Figure:
    """Draw a panel of dots for each measure, and one of seconds; one line per model."""
    names = [name for name in DRAWN[task] if name in table]
    fig = Figure((2.0 + 1.9 * (len(names) + 1), 1.6 + 0.32 * len(table)), layout="constrained")
    axes = fig.subplots(1, len(names) + 1, sharey=True)
    places = np.arange(len(table))[::-1]
    for ax, name in zip(axes, [*names, "fit_seconds"], strict=True):
        values = table[name].to_numpy()
        known = np.isfinite(values)
        best = best_of(name, dict(zip(table.index, values, strict=True)))
        colours = [ACCENT if model in best and name in names else INK for model in table.index]
        ax.hlines(places, 0, 1, transform=ax.get_yaxis_transform(), color=GREY, lw=0.5, zorder=0)
        ax.scatter(values[known], places[known], c=np.array(colours)[known], s=28)
        if name == "coverage":
            ax.axvline(level, color=INK, lw=0.9, ls="--", zorder=1)
        if name == "fit_seconds" and (values > 0).all():
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())
        else:
            ax.set_xlim(*_shown(name, values[known], level))
            ax.locator_params(axis="x", nbins=3)
            if name in SHARES:
                ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
        ax.set_title(SPELT_OUT.get(name, "seconds of the fit"), fontsize=8.5)
        ax.tick_params(labelsize=8)
        frame(ax)
    axes[0].set_yticks(places, list(table.index), fontsize=9)
    axes[0].set_ylim(-0.6, len(table) - 0.4)
    note = (
        "red: the best, and those within a thousandth of it; a model without a dot has no such "
        "measure"
    )
    if "coverage" in names:
        note += f"; dashed: the probability of the intervals, {level:.0%}"
    write_below(fig, note, fig.get_figwidth())
    return fig


def _shown(name: str, values: Any, level: float) -> tuple[float, float]:
    """Ends of an axis: not so near one another that differences of no account fill it."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if name == "coverage":
        reach = 1.15 * max(_COVERAGE, level - low, high - level)
        return level - reach, level + reach
    if name in FROM_ZERO:
        return -0.05 * high, 1.15 * high or 1.0
    apart = max(high - low, _APART)
    return (low + high) / 2 - 0.65 * apart, (low + high) / 2 + 0.65 * apart


def _draw_one(work: Work, model: str, stages: list[str], encoded: Encoded, level: float) -> None:
    """Draw the functions of every fit of a model, and its predictions, in a folder of its own."""
    folder = work.folder / model
    folder.mkdir()
    fits = [stage for stage in stages if stage in FITS]
    for stage in fits:
        place = folder if len(fits) == 1 else folder / stage
        place.mkdir(exist_ok=True)
        draw_model(dsgp.load(work.needs[f"{model}/{stage}"] / MODEL), place, encoded.target)
    predictions = pd.read_parquet(work.needs[f"{model}/evaluation"] / PREDICTIONS)
    draw_predictions(
        predictions,
        folder,
        encoded.task,
        target=encoded.target,
        level=level,
        target_mean=encoded.facts["target_mean"],
        classes=None if encoded.facts["classes"] is None else encoded.classes,
    )
