"""Classification and counts: accuracy, cost beside mgcv and SVC, and cost against the rows.

``python -m benchmarks.classification accuracy | mgcv | scaling | poisson``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from benchmarks.pages import (
    MISSING,
    circumstances,
    command,
    integers,
    json_text,
    markdown,
    plain,
    say,
    show,
)
from benchmarks.pursuit import Seconds, slope
from dsgp import AdditiveGPClassifier, ProjectionPursuitGPClassifier
from dsgp.errors import ParameterError
from dsgp.interrupt import exit_on_termination
from dsgp.progress import progress
from pipelines.datasets import load_labels

try:
    from benchmarks.classification_fits import (
        BINARY,
        KERNELS,
        POISSON,
        Contender,
        Machine,
        Scores,
        apart,
        baselines,
        bayes,
        beside_mgcv,
        cost_of_svc,
        fit_and_score,
        synth_labels,
        warm_up,
    )
    from pipelines.peers import Mgcv
    from pipelines.reporting import plain_errors
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"Error: {error}")

MODULE = "benchmarks.classification"

# Test error and MNLL that each set must not exceed with default settings.
LIMITS = {
    "breast_cancer_wisconsin_original": (0.022, 0.060),
    "magic_gamma": (0.146, 0.363),
    "ijcnn1": (0.054, 0.155),
}
PURSUIT_LIMITS = {"magic_gamma": (0.130, 0.320), "ijcnn1": (0.030, 0.090)}
# Beside mgcv, by rows: wall seconds or share of its time, and MNLL on the 1000 test points.
MGCV_SECONDS, MGCV_SHARE = {10_000: 0.5}, {1_000_000: 0.5}
MGCV_MNLL, MGCV_ABOVE_BAYES = {10_000: 0.4345}, {1_000_000: 0.001}
SLOPE = 1.05  # of processor seconds of the fit by rows, in logarithms
LARGE = 30_000  # rows from which the slope is reported too
SVC_SHARE = 0.1  # of the SVC's processor seconds, for the iterations of the learner

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Out = Annotated[Path, Option(metavar="FOLDER", help="Output folder.")]
OUT = Path("results/classification")


def kept(holds: bool | None) -> str:
    """Say whether a promise holds; None where there is none."""
    return MISSING if holds is None else "kept" if holds else "BROKEN"


def write(out: Path, name: str, report: dict[str, Any], lines: Sequence[str]) -> None:
    """Write NAME.json and NAME.md."""
    out.mkdir(parents=True, exist_ok=True)
    text = json_text({**circumstances(MODULE), **report})
    (out / f"{name}.json").write_text(text, encoding="utf-8")
    page = [lines[0], "", f"`{command(MODULE)}`", "", *lines[1:]]
    (out / f"{name}.md").write_text("\n".join(page) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------- accuracy


@dataclass(frozen=True)
class Accuracy:
    """One classifier, judged on the test rows of one set."""

    data: str
    n_train: int
    n_test: int
    n_features: int
    method: str
    scores: Scores
    fit: Seconds
    predict: Seconds
    limits: tuple[float, float] | None

    @property
    def kept(self) -> bool | None:
        if self.limits is None:
            return None
        return self.scores.error <= self.limits[0] and self.scores.mnll <= self.limits[1]


ACCURACY_HEADER = (
    "data", "rows", "method", "error", "MNLL", "ECE", "fit s", "predict s", "limits", "promise",
)  # fmt: skip


def accuracy_rows(found: Iterable[Accuracy]) -> list[list[str]]:
    """Format, with the columns of ``ACCURACY_HEADER``."""
    return [
        [
            each.data,
            f"{each.n_train} × {each.n_features}",
            each.method,
            f"{each.scores.error:.4f}",
            f"{each.scores.mnll:.4f}",
            f"{each.scores.ece:.4f}",
            str(each.fit),
            str(each.predict),
            MISSING if each.limits is None else f"{each.limits[0]:g} / {each.limits[1]:g}",
            kept(each.kept),
        ]
        for each in found
    ]


ACCURACY_EXAMPLES = """\b
Examples:
  python -m benchmarks.classification accuracy --data-dir data
  python -m benchmarks.classification accuracy magic_gamma ijcnn1 --data-dir data --pursuit
  python -m benchmarks.classification accuracy breast_cancer --no-baselines
"""


@app.command(epilog=ACCURACY_EXAMPLES)
def accuracy(
    data: Annotated[
        list[str] | None,
        Argument(metavar="[DATA]…", help=f"By default {', '.join(LIMITS)}."),
    ] = None,
    data_dir: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder of the .npz sets, as for the pipelines.")
    ] = None,
    pursuit: Annotated[
        bool, Option("--pursuit", help="Fit ProjectionPursuitGPClassifier too.")
    ] = False,
    baseline: Annotated[
        bool, Option("--baselines/--no-baselines", help="Fit scikit-learn's classifiers too.")
    ] = True,
    out: Out = OUT,
) -> None:
    """Fit the public sets with default settings, beside scikit-learn's additive classifiers.

    Training rows are the first 80 % of default_rng(0).permutation, or those of the published split.
    """
    exit_on_termination()
    with plain_errors():
        splits = [load_labels(name, data_dir=data_dir) for name in data or LIMITS]
        found: list[Accuracy] = []
        n_methods = 1 + pursuit + (len(baselines()) if baseline else 0)
        with progress("fits", len(splits) * n_methods) as bar:
            bar.update(0, now="compiling")
            warm_up()
            if pursuit:
                few = ProjectionPursuitGPClassifier(n_projections=2, random_state=0)
                fit_and_score(few, synth_labels(500, 100))
            for split in splits:
                methods: dict[str, Any] = {"dsgp, additive": AdditiveGPClassifier()}
                limits = {"dsgp, additive": LIMITS.get(split.name)}
                if pursuit:
                    methods["dsgp, pursuit"] = ProjectionPursuitGPClassifier(random_state=0)
                    limits["dsgp, pursuit"] = PURSUIT_LIMITS.get(split.name)
                if baseline:
                    methods |= baselines()
                for method, model in methods.items():
                    bar.update(0, now=f"{split.name}, {method}")
                    scores, fit, predict = fit_and_score(model, split)
                    shape = (len(split.y_train), len(split.y_test), split.X_train.shape[1])
                    limit = limits.get(method)
                    found.append(Accuracy(split.name, *shape, method, scores, fit, predict, limit))
                    bar.update()
                    write(
                        out,
                        "accuracy",
                        {"fits": [{**asdict(each), "kept": each.kept} for each in found]},
                        [
                            "# Accuracy of classification",
                            *markdown(ACCURACY_HEADER, accuracy_rows(found)),
                            "",
                            "Seconds are processor / wall. MNLL in nats; ECE over ten bins of "
                            "equal count. Limits: error / MNLL at most, promised for default "
                            "settings. Splines have 20 quantile knots per column, and the "
                            "penalty that cross-validation chooses.",
                        ],
                    )
        show("Accuracy", ACCURACY_HEADER, accuracy_rows(found))
        say(f"results are in {out}")


# ---------------------------------------------------------------------- mgcv


def mgcv_promises(contenders: Sequence[Contender], best: float) -> dict[str, bool]:
    """Say which promises about one size hold, of the default model beside mgcv."""
    ours, peer, n = contenders[0], contenders[-1], contenders[0].n
    seconds, mnll = ours.total.best.wall, ours.scores.mnll
    promises = {}
    if n in MGCV_SECONDS:
        promises[f"at most {MGCV_SECONDS[n]:g} s"] = seconds <= MGCV_SECONDS[n]
    if n in MGCV_SHARE:
        share = MGCV_SHARE[n]
        promises[f"at most {share:g} of mgcv's time"] = seconds <= share * peer.total.best.wall
    if n in MGCV_MNLL:
        promises[f"MNLL at most {MGCV_MNLL[n]:g}"] = mnll <= MGCV_MNLL[n]
    if n in MGCV_ABOVE_BAYES:
        above = MGCV_ABOVE_BAYES[n]
        promises[f"MNLL within {above:g} of the truth's"] = mnll <= best + above
    return promises


MGCV_HEADER = (
    "rows", "method", "fit s, best", "fit s, median", "predict s, best", "both s, best",
    "both / mgcv", "error", "MNLL", "MNLL of the truth", "above it",
)  # fmt: skip


def mgcv_rows(found: Iterable[tuple[Sequence[Contender], Scores]]) -> list[list[str]]:
    """Format, with the columns of ``MGCV_HEADER``."""
    rows = []
    for contenders, truth in found:
        peer = contenders[-1].total.best
        for each in contenders:
            both = each.total.best
            rows.append(
                [
                    f"{each.n:,}",
                    each.name,
                    str(each.fit.best),
                    str(each.fit.median),
                    str(each.predict.best),
                    str(both),
                    f"{both.cpu / peer.cpu:.2f} / {both.wall / peer.wall:.2f}",
                    f"{each.scores.error:.4f}",
                    f"{each.scores.mnll:.5f}",
                    f"{truth.mnll:.5f}",
                    f"{each.scores.mnll - truth.mnll:+.5f}",
                ]
            )
    return rows


MGCV_EXAMPLES = """\b
Examples:
  python -m benchmarks.classification mgcv
  python -m benchmarks.classification mgcv --sizes 1e4 --repeats 9 --kernels default
  OPENBLAS_NUM_THREADS=1 python -m benchmarks.classification mgcv --sizes 1e6
"""


@app.command(epilog=MGCV_EXAMPLES)
def mgcv(
    sizes: Annotated[str, Option(metavar="N,N,…", help="Training rows.")] = "1e4,1e6",
    kernels: Annotated[
        str,
        Option(
            metavar="K,K,…",
            help=f"Of our models: default, {', '.join(KERNELS)}; the first is held to the "
            "promises. matern72 is that of the functions drawn.",
        ),
    ] = "default,matern72",
    k: Annotated[int, Option(metavar="K", help="Of mgcv's s(x, k = K).")] = 20,
    n_test: Annotated[int, Option(metavar="N", help="Test points.")] = 1000,
    repeats: Annotated[int, Option(metavar="N", help="Number of runs of every fit, in turn.")] = 3,
    out: Out = OUT,
) -> None:
    """Fit synth8d-binary beside mgcv's bam(discrete=TRUE, family=binomial), by turns.

    mgcv gets and returns its data in files; that is not timed.
    """
    exit_on_termination()
    with plain_errors():
        rows = sorted(integers("--sizes", sizes, 100))
        names = [None if name == "default" else name for name in kernels.split(",")]
        unknown = [name for name in names if name is not None and name not in KERNELS]
        if unknown or repeats < 1:
            raise ParameterError(
                f"--kernels: expected some of default, {', '.join(KERNELS)}, got {kernels!r}"
                if unknown
                else f"--repeats must be at least 1, got {repeats}"
            )
        Mgcv(k).require()
        found: list[tuple[list[Contender], Scores]] = []
        promises: dict[str, dict[str, bool]] = {}
        with progress("sizes", len(rows)) as bar:
            bar.update(0, now="compiling")
            warm_up(rows[-1])
            for n in rows:
                bar.update(0, now=f"{n} rows")
                truth = bayes(synth_labels(n, n_test))
                contenders = beside_mgcv(n, n_test, names, k, repeats)
                found.append((contenders, truth))
                promises[str(n)] = mgcv_promises(contenders, truth.mnll)
                write(
                    out,
                    "mgcv",
                    {
                        "contenders": [asdict(one) for many, _ in found for one in many],
                        "truth": [asdict(score) for _, score in found],
                        "promises": promises,
                    },
                    [
                        "# Classification beside mgcv",
                        *markdown(MGCV_HEADER, mgcv_rows(found)),
                        "",
                        *promise_lines(promises),
                        "",
                        f"{BINARY}, {n_test} test points. Seconds are processor / wall, the best "
                        f"or the median of {repeats} by turns; prediction is that of "
                        "probabilities. Of mgcv with one thread and with all of them the smaller "
                        "time counts.",
                    ],
                )
                bar.update()
        show("Beside mgcv", MGCV_HEADER, mgcv_rows(found))
        for line in promise_lines(promises):
            say(line)
        say(f"results are in {out}")


def promise_lines(promises: dict[str, dict[str, bool]]) -> list[str]:
    """Return a line a promise."""
    return [
        f"* {int(n):,} rows: {what}: {kept(holds)}"
        for n, some in promises.items()
        for what, holds in some.items()
    ]


# ---------------------------------------------------------------------- scaling


def fit_slopes(found: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Exponents of the seconds of the fits by rows: of all sizes, and of the large ones."""
    large = [each for each in found if each["n"] >= LARGE]
    return {
        f"{kind} time{where}": slope(
            [each["n"] for each in some], [min(each["fit"][kind]) for each in some]
        )
        for where, some in (("", found), (f" from {LARGE:,} rows", large))
        for kind in ("cpu", "wall")
    }


SCALING_HEADER = (
    "rows", "fit s, best", "modes", "µs a row", "predict s", "error", "MNLL", "MNLL of the truth",
    "RMSE of f", "95 % of f covers", "peak MB", "before the fit", "converged",
)  # fmt: skip


def scaling_rows(found: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Format, with the columns of ``SCALING_HEADER``."""
    return [
        [
            f"{each['n']:,}",
            str(_best(each)),
            str(each["modes"]),
            f"{1e6 * _best(each).cpu / each['n']:.1f}",
            str(Seconds(**each["predict"])),
            f"{each['scores']['error']:.4f}",
            f"{each['scores']['mnll']:.4f}",
            f"{each['bayes']['mnll']:.4f}",
            f"{each['rmse_f']:.4f}",
            f"{each['coverage_f']:.1%}",
            _megabytes(each["peak_memory_mb"]),
            _megabytes(each["memory_before_mb"]),
            "yes" if each["converged"] else "NO",
        ]
        for each in found
    ]


def scaling_lines(
    found: Sequence[dict[str, Any]], learnt: dict[str, Any] | None, machine: Machine | None
) -> list[str]:
    """Return slopes, and the learner beside the support vector machine."""
    lines = [
        f"* {name}: ∝ N^{value:.2f}"
        for name, value in fit_slopes(found).items()
        if value is not None
    ]
    overall = fit_slopes(found)["cpu time"]
    if overall is not None:
        lines.append(f"* promised: processor time ∝ N^{SLOPE:g} at most: {kept(overall <= SLOPE)}")
    if learnt is not None:
        lines.append(
            f"* learner, {sum(learnt['modes'])} iterations on {learnt['n']:,} rows, in "
            f"{len(learnt['modes'])} fits: {Seconds(**learnt['fit'])} s, "
            f"MNLL {learnt['scores']['mnll']:.4f}"
        )
    if learnt is not None and machine is not None:
        few = ", ".join(f"{n:,} rows {plain(s)}" for n, s in machine.measured.items())
        how = (
            "measured"
            if machine.exponent is None
            else f"extrapolated with the exponent {machine.exponent:.2f} of {few} s"
        )
        share = learnt["fit"]["cpu"] / machine.cpu_seconds
        lines.append(
            f"* SVC(probability=True) on {machine.n:,} rows: {plain(machine.cpu_seconds)} s of "
            f"processor time ({how}); the learner takes {share:.3f} of it, promised "
            f"{SVC_SHARE:g} at most: {kept(share <= SVC_SHARE)}"
        )
    return lines


SCALING_EXAMPLES = """\b
Examples:
  python -m benchmarks.classification scaling
  python -m benchmarks.classification scaling --sizes 2e3,2e4,2e5 --no-svc
  python -m benchmarks.classification scaling --svc-limit 600 --svc-n 10000
"""


@app.command(epilog=SCALING_EXAMPLES)
def scaling(
    sizes: Annotated[
        str, Option(metavar="N,N,…", help="Training rows.")
    ] = "2e3,5e3,1e4,3e4,1e5,3e5,1e6",
    n_test: Annotated[int, Option(metavar="N", help="Test points.")] = 20_000,
    repeats: Annotated[
        int, Option(metavar="N", help="Maximum number of fits per size; the best one is reported.")
    ] = 3,
    kernel: Annotated[
        str | None, Option(metavar="KERNEL", help=f"Of {', '.join(KERNELS)}; else the default.")
    ] = None,
    learn_n: Annotated[
        int,
        Option(metavar="N", help="Number of rows for the learner's iterations, and for the SVC."),
    ] = 50_000,
    iterations: Annotated[int, Option(metavar="N", help="Of the learner.")] = 25,
    svc: Annotated[
        bool, Option("--svc/--no-svc", help="Also measure scikit-learn's SVC, which takes minutes.")
    ] = True,
    svc_limit: Annotated[
        float | None,
        Option(
            metavar="SECONDS",
            help="Time limit of the SVC in wall time, after which it is extrapolated.",
        ),
    ] = None,
    svc_n: Annotated[
        int,
        Option(
            metavar="N",
            help="Number of rows from which it is extrapolated, together with half as many.",
        ),
    ] = 12_500,
    out: Out = OUT,
) -> None:
    """Fit synth8d-binary against the number of rows, each size in a process of its own.

    Then the learner's iterations beside SVC(probability=True) on the same rows.
    """
    exit_on_termination()
    with plain_errors():
        rows = sorted(integers("--sizes", sizes, 100))
        if kernel is not None and kernel not in KERNELS:
            raise ParameterError(f"--kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")
        if min(repeats, iterations) < 1 or min(learn_n, svc_n) < 200:
            raise ParameterError(
                "--repeats and --iterations must be at least 1, --learn-n and --svc-n at least 200"
            )
        found: list[dict[str, Any]] = []
        learnt: dict[str, Any] | None = None
        machine: Machine | None = None

        def report() -> None:
            write(
                out,
                "scaling",
                {
                    "sizes": found,
                    "slopes": fit_slopes(found),
                    "learner": learnt,
                    "svc": None if machine is None else asdict(machine),
                },
                [
                    "# Cost of classification",
                    *markdown(SCALING_HEADER, scaling_rows(found)),
                    "",
                    *scaling_lines(found, learnt, machine),
                    "",
                    f"{BINARY}, {n_test} test points. Seconds are processor / wall of the best of "
                    f"{repeats} fits at most. Memory is the peak of the process, with the rows.",
                ],
            )

        with progress("runs", len(rows) + 1 + svc) as bar:
            for n in rows:
                bar.update(0, now=f"{n} rows")
                found.append(apart("scale", n=n, n_test=n_test, repeats=repeats, kernel=kernel))
                report()
                bar.update()
            bar.update(0, now=f"{iterations} iterations of the learner")
            learnt = apart("learn", n=learn_n, iterations=iterations)
            report()
            bar.update()
            if svc:
                bar.update(0, now=f"SVC of {learn_n} rows")
                machine = cost_of_svc(learn_n, svc_n, svc_limit)
                report()
                bar.update()
        show("Scaling", SCALING_HEADER, scaling_rows(found))
        for line in scaling_lines(found, learnt, machine):
            say(line)
        say(f"results are in {out}")


# ---------------------------------------------------------------------- poisson

POISSON_HEADER = (
    "method", "rows", "fit s", "predict s", "NLL", "NLL of the truth", "RMSE of f",
    "95 % of f covers", "peak MB", "before the fit",
)  # fmt: skip


def poisson_rows(found: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Format, with the columns of ``POISSON_HEADER``."""
    return [
        [
            each["name"],
            f"{each['n']:,}",
            str(Seconds(**each["fit"])),
            str(Seconds(**each["predict"])),
            f"{each['nll']:.5f}",
            f"{each['nll_truth']:.5f}",
            f"{each['rmse_f']:.5f}",
            f"{each['coverage_f']:.1%}",
            _megabytes(each["peak_memory_mb"]),
            _megabytes(each["memory_before_mb"]),
        ]
        for each in found
    ]


COMPONENT_HEADER = ("component", "std", "RMSE", "95 % covers")


def component_rows(found: dict[str, Any]) -> list[list[str]]:
    """Format, with the columns of ``COMPONENT_HEADER``."""
    rows = [
        [term, f"{each['std']:.4f}", f"{each['rmse']:.5f}", f"{each['coverage']:.1%}"]
        for term, each in found["components"].items()
    ]
    covered = [each["coverage"] for each in found["components"].values()]
    return [*rows, ["mean of all", "", "", f"{math.fsum(covered) / len(covered):.1%}"]]


POISSON_EXAMPLES = """\b
Examples:
  python -m benchmarks.classification poisson
  python -m benchmarks.classification poisson --n 1e5 --no-mgcv
"""


@app.command(epilog=POISSON_EXAMPLES)
def poisson(
    n: Annotated[str, Option(metavar="N", help="Training rows.")] = "1e6",
    n_test: Annotated[int, Option(metavar="N", help="Test points.")] = 20_000,
    beside: Annotated[
        bool, Option("--mgcv/--no-mgcv", help="Fit mgcv's bam(family=poisson) too.")
    ] = True,
    k: Annotated[int, Option(metavar="K", help="Of mgcv's s(x, k = K).")] = 20,
    out: Out = OUT,
) -> None:
    """Fit counts with exposures whose components are known, and compare with these."""
    exit_on_termination()
    with plain_errors():
        rows = integers("--n", n, 100)[0]
        if beside:
            Mgcv(k).require()
        found: list[dict[str, Any]] = []
        tasks: dict[str, dict[str, int]] = {"poisson": {}}
        if beside:
            tasks["poisson_mgcv"] = {"size": k}
        with progress("fits", len(tasks)) as bar:
            for task, own in tasks.items():
                bar.update(0, now=task)
                found.append(apart(task, n=rows, n_test=n_test, **own))
                bar.update()
                write(
                    out,
                    "poisson",
                    {"fits": found},
                    [
                        "# Counts with exposures",
                        *markdown(POISSON_HEADER, poisson_rows(found)),
                        "",
                        "## Components",
                        "",
                        *markdown(COMPONENT_HEADER, component_rows(found[0])),
                        "",
                        f"{POISSON}, {n_test} test points. Seconds are processor / wall; "
                        "prediction is that of f with its standard deviation. Components are "
                        "compared with the true ones, both centred by the weights at the mode.",
                    ],
                )
        show("Counts", POISSON_HEADER, poisson_rows(found))
        show("Components", COMPONENT_HEADER, component_rows(found[0]))
        say(f"results are in {out}")


def _best(scaled: dict[str, Any]) -> Seconds:
    return Seconds(min(scaled["fit"]["cpu"]), min(scaled["fit"]["wall"]))


def _megabytes(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"


if __name__ == "__main__":
    app(prog_name=f"python -m {MODULE}")
