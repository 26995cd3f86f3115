"""The reports for people: report.md of each command, and the lines a terminal shows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipelines.grid import filling
from pipelines.grid.corners import FULL, SLOPE_FROM, Timing, slopes_of
from pipelines.grid.corners import OURS as KRONECKER
from pipelines.grid.imaging import AS_IT_IS, OURS, Task

# Of the paper's Section on grids, in seconds; of its machine and image, which is not published.
PAPER = {
    "denoise": {"learn": 42.75, "reconstruct": 1490.3},
    "interpolate": {"learn": 4.57, "reconstruct": 186.61},
}
_WHAT = {
    "denoise": "smoothed",
    "interpolate": "reconstructed from a quarter of the pixels",
}


def metrics_of_image(tasks: Sequence[Task]) -> dict[str, Any]:
    """Scores, seconds and hyperparameters by case, kind and method."""
    metrics: dict[str, Any] = {}
    for task in tasks:
        metrics.setdefault(task.case, {})[task.kind] = {
            reconstruction.method: {
                "scores": reconstruction.scores,
                "seconds": reconstruction.seconds,
                "fitted": reconstruction.fitted,
            }
            for reconstruction in task.methods
        }
    return metrics


def image_report(source: str, noise: float, tasks: Sequence[Task], notes: Iterable[str]) -> str:
    """The page about an image."""
    size = tasks[0].given.shape
    lines = [
        f"# {size[0]} × {size[1]} pixels: {source}",
        "",
        f"Grey levels 0 to 255. Noise added: Gaussian, standard deviation {noise:g}. PSNR (dB, "
        "peak 255) and SSIM are of all pixels, against the image before noise was added. Coverage "
        "is of the 95 % interval, of all pixels or, where some were left out, of those; of the "
        'image as it is with the noise of a pixel. "Noise of rounding" keeps the noise variance '
        "at 1/12, that of whole grey levels: what is learned as noise of a clean image is its "
        "edges.",
    ]
    for task in tasks:
        lines += ["", f"## Image {_case(task)}, {_WHAT[task.kind]}", ""]
        if task.truth is None:
            lines += [_without_truth(task), ""]
        lines += markdown_table(
            ["method", "PSNR", "SSIM", "RMSE left out", "coverage", "learning s",
             "reconstruction s"],
            [
                [
                    reconstruction.method,
                    _number(reconstruction.scores.get("psnr"), ".2f"),
                    _number(reconstruction.scores.get("ssim"), ".4f"),
                    _number(reconstruction.scores.get("rmse_left_out"), ".2f"),
                    _number(reconstruction.scores.get("coverage"), ".1%"),
                    _number(reconstruction.seconds.get("learn"), ".3f"),
                    _number(reconstruction.seconds.get("reconstruct"), ".3f"),
                ]
                for reconstruction in task.methods
            ],
        )  # fmt: skip
    lines += ["", "## Seconds, compared with the paper's", ""]
    lines += markdown_table(
        ["", "learning s", "reconstruction with variance s"], list(_beside_paper(tasks))
    )
    lines += [
        "",
        "The paper's image, also of 200 × 200 pixels, is not published, and its machine was "
        "another one: its seconds give the order of magnitude only.",
        "",
        "## Hyperparameters",
        "",
    ]
    for task in tasks:
        for reconstruction in task.methods:
            if reconstruction.fitted:
                kernels = ", ".join(
                    f"{dim} {text}" for dim, text in reconstruction.fitted["kernels"].items()
                )
                lines.append(
                    f"* {task.case}, {task.kind}, {reconstruction.method}: {kernels}; noise "
                    f"{reconstruction.fitted['noise_std']:.2f} grey levels"
                )
    return _page(lines, notes)


def _case(task: Task) -> str:
    return "as it is" if task.case == AS_IT_IS else "with noise"


def _without_truth(task: Task) -> str:
    noise = task.ours.fitted["noise_std"]
    taken = float(((task.given - task.ours.mean) ** 2).mean() ** 0.5)
    return (
        f"Nothing cleaner than this image is known, so that there is nothing to compare with: the "
        f"noise learned is {noise:.2f} grey levels, what smoothing takes away has a root mean "
        f"square of {taken:.2f}."
    )


def _beside_paper(tasks: Sequence[Task]) -> Iterable[list[str]]:
    for kind, seconds in PAPER.items():
        yield [f"{_WHAT[kind]}: the paper", f"{seconds['learn']}", f"{seconds['reconstruct']}"]
        for task in tasks:
            if task.kind == kind:
                measured = task.ours.seconds
                name = f"{_WHAT[kind]}: GridGP, {_case(task)}"
                yield [name, f"{measured['learn']:.3f}", f"{measured['reconstruct']:.3f}"]


def image_rows(tasks: Sequence[Task]) -> dict[str, str]:
    """Lines for a terminal."""
    rows = {}
    for task in tasks:
        for reconstruction in task.methods:
            if reconstruction.scores.get("psnr") is not None:
                similar = _number(reconstruction.scores["ssim"], ".3f")
                name = f"{task.case}, {task.kind}: {reconstruction.method}"
                rows[name] = f"{reconstruction.scores['psnr']:.2f} dB, SSIM {similar}"
    for task in tasks:
        ours = task.ours
        paper = PAPER[task.kind]
        rows[f"{task.case}, {task.kind}: seconds of learning + reconstruction"] = (
            f"{ours.seconds['learn']:.3f} + {ours.seconds['reconstruct']:.3f} "
            f"(paper {paper['learn']} + {paper['reconstruct']})"
        )
    return rows


# ---- fields


def field_report(
    facts: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, float]],
    seconds: Mapping[str, float],
    cpu_seconds: Mapping[str, float],
    summary: str,
    notes: Iterable[str],
) -> str:
    """The page about a field."""
    sizes = " × ".join(f"{dim} {n}" for dim, n in facts["sizes"].items())
    lines = [
        f"# {facts['name']}: {sizes}",
        "",
        f"{facts['n_observed']:,} of {facts['n_cells']:,} cells are observed; {facts['n_fit']:,} "
        f"are fitted to, {facts['n_points']:,} single cells and {facts['n_clouds']:,} in blocks of "
        f"{facts['side']} × {facts['side']} ({facts['blocks']} a time step) are held out. RMSE in "
        f"{facts['unit'] or 'units of the field'}; coverage is of the 95 % interval of an "
        "observation. Linear interpolation takes each time step by itself.",
        "",
    ]
    lines += markdown_table(
        ["method", "RMSE cells", "RMSE blocks", "coverage cells", "coverage blocks", "answered",
         "seconds", "CPU s"],
        [
            [
                name,
                _number(of_method.get("rmse_points"), ".4f"),
                _number(of_method.get("rmse_clouds"), ".4f"),
                _number(of_method.get("coverage_points"), ".1%"),
                _number(of_method.get("coverage_clouds"), ".1%"),
                _number(of_method.get("filled"), ".1%"),
                _number(_seconds_of(name, seconds), ".1f"),
                _number(cpu_seconds[name], ".1f"),
            ]
            for name, of_method in scores.items()
        ],
    )  # fmt: skip
    if facts.get("rmse_truth") is not None:
        lines += [
            "",
            f"Under the clouds of the synthetic field the truth is known too: the RMSE of GridGP "
            f"is {facts['rmse_truth']:.4f} there, and the 95 % interval covers "
            f"{facts['coverage_truth']:.1%}.",
        ]
    lines += ["", "## Model", "", "```", summary, "```"]
    return _page(lines, notes)


def field_rows(scores: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Lines for a terminal."""
    rows = {}
    for name, of_method in scores.items():
        rows[f"{name}: RMSE of cells / blocks"] = " / ".join(
            _number(of_method.get(f"rmse_{kind}"), ".4f") for kind in ("points", "clouds")
        )
    ours = scores[filling.OURS]
    rows["95 % intervals cover, cells / blocks"] = " / ".join(
        _number(ours.get(f"coverage_{kind}"), ".1%") for kind in ("points", "clouds")
    )
    return rows


def _seconds_of(name: str, seconds: Mapping[str, float]) -> float:
    return seconds["fit"] + seconds["posterior"] if name == OURS else seconds[name]


# ---- corners


def corners_report(timings: Sequence[Timing], kernel: str, why: str, notes: Iterable[str]) -> str:
    """The page about corners."""
    by_size: dict[int, dict[str, Timing]] = {}
    for timing in timings:
        by_size.setdefault(timing.dims, {})[timing.method] = timing
    lines = [
        "# One learning iteration at the corners of a hypercube",
        "",
        f"The paper's Figure fig:kron: inputs {{−1, 1}}^D, targets noise, {kernel} in every dim. "
        "An iteration is the log marginal likelihood with its derivatives by all lengthscales, "
        "amplitude and noise; seconds are the least of several runs.",
        "",
    ]
    lines += markdown_table(
        ["D", "N", "Kronecker s", "full GP s", "log likelihoods differ by"],
        [
            [
                str(d),
                f"{2**d:,}",
                _number(_seconds(by_method, KRONECKER), ".3g"),
                _number(_seconds(by_method, FULL), ".3g"),
                _difference(by_method),
            ]
            for d, by_method in sorted(by_size.items())
        ],
    )
    lines += ["", *slope_lines(timings)]
    if why:
        lines += ["", f"The full GP ends where it does: {why}."]
    return _page(lines, notes)


def slope_lines(timings: Sequence[Timing]) -> list[str]:
    """Say the slopes in words."""
    large, whole = slopes_of(timings), slopes_of(timings, 0)
    lines = []
    for method, slope in whole.items():
        sentence = f"* {method}: seconds ∝ N^{slope:.2f} over all N"
        if method in large:
            sentence += f", N^{large[method]:.2f} from N = {SLOPE_FROM[method]:,} on"
        lines.append(f"{sentence}.")
    return lines


def corners_rows(timings: Sequence[Timing]) -> dict[str, str]:
    """Lines for a terminal."""
    rows = {}
    slopes = slopes_of(timings)
    for method in (KRONECKER, FULL):
        of_method = [timing for timing in timings if timing.method == method]
        if of_method:
            rows[f"{method}, N = 2^{of_method[-1].dims}"] = f"{of_method[-1].seconds:.3g} s"
        if method in slopes:
            rows[f"{method}, slope from N = {SLOPE_FROM[method]:,}"] = f"{slopes[method]:.2f}"
    return rows


def _seconds(by_method: Mapping[str, Timing], method: str) -> float | None:
    return by_method[method].seconds if method in by_method else None


def _difference(by_method: Mapping[str, Timing]) -> str:
    if len(by_method) < 2:
        return "–"
    one, other = (timing.log_likelihood for timing in by_method.values())
    return f"{abs(one - other) / abs(other):.0e} relative"


# ---- parts


def markdown_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a table; all but the first column to the right."""
    header = list(header)
    return [
        f"| {' | '.join(header)} |",
        "| --- |" + " ---: |" * (len(header) - 1),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _page(lines: list[str], notes: Iterable[str]) -> str:
    notes = list(notes)
    if notes:
        lines = [*lines, "", "Notes:", "", *(f"* {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
