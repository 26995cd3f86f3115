"""The sections of a configuration: what load, encode, models and the rest may hold.

Only names, types and ranges are checked here; what needs the data is checked by the stages.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dsgp.errors import ParameterError
from dsgp.kernels import Matern, Matern12, Matern32, Matern52, Matern72
from dsgp.likelihoods import names as LIKELIHOODS
from dsgp.priors import HyperPriors
from dsgp.rows.sources import CsvFormat
from dsgp.terms import term_of

try:
    from pydantic import (
        AfterValidator,
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Discriminator,
        Field,
        Tag,
        model_validator,
    )
except ImportError as error:
    raise ImportError(
        'the pipelines need pydantic and PyYAML: pip install ".[pipelines]" in a checkout of dsgp'
    ) from error

KERNELS = {kernel.__name__.lower(): kernel for kernel in (Matern12, Matern32, Matern52, Matern72)}

KernelName = Literal["matern12", "matern32", "matern52", "matern72"]
Solver = Literal["multigrid", "cg", "backfitting"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
ColumnPair = Annotated[list[str], Field(min_length=2, max_length=2)]
# A folder of its own is named after the model.
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}$")]


class Section(BaseModel):
    """A part of the file; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def path_of(value: Any) -> Any:
    """Read text as a path."""
    return Path(value) if isinstance(value, str) else value


def _in_folder(data_dir: Path | None, name: str) -> list[str | Path | None]:
    """Files of a set by name: one, or one to train and one to test on."""
    ends = (".npz", "_train.npz", "_test.npz")
    return [] if data_dir is None else [data_dir / f"{name}{end}" for end in ends]


class Kernel(Section):
    """A covariance function: its name alone, or with starts, or with parameters that are fixed."""

    type: KernelName = "matern52"
    lengthscale: Positive | None = None
    variance: Positive | None = None
    fixed: list[Literal["lengthscale", "variance"]] = []

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    def build(self) -> Matern:
        return KERNELS[self.type](self.lengthscale, self.variance, fixed=tuple(self.fixed))


def _none_of(value: Any) -> Any:
    """``none`` says what YAML's null does, as on the command line."""
    return None if value == "none" else value


Transform = Annotated[Literal["log", "yeo-johnson"] | None, BeforeValidator(_none_of)]
Bins = Annotated[
    Literal["auto"] | Annotated[int, Field(ge=2, le=65_535)] | None, BeforeValidator(_none_of)
]


class Load(Section):
    """Which rows, and which of them are trained on."""

    data: str
    test: str | None = None
    target: str | None = None
    exposure: str | None = None
    columns: list[str] | None = None
    drop: list[str] = []
    data_dir: Annotated[Path | None, BeforeValidator(path_of)] = None
    n: Count | None = None
    n_test: Count | None = None
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    seed: int | None = None
    delimiter: str = ","
    decimal: Literal[".", ","] = "."
    encoding: str = "utf-8"

    @property
    def format(self) -> CsvFormat:
        """How CSV files are written."""
        return CsvFormat(self.delimiter, self.decimal, self.encoding)

    @property
    def files(self) -> list[str | Path | None]:
        """What may be read: paths that exist, and others."""
        return [self.data, self.test, *_in_folder(self.data_dir, self.data)]

    @model_validator(mode="after")
    def _one_list_of_columns(self) -> Self:
        if self.columns is not None and self.drop:
            raise ValueError("columns already says which inputs are used; leave out drop")
        if self.test is not None and "test_share" in self.model_fields_set:
            raise ValueError("test already names the rows to test on; leave out test_share")
        self.format  # noqa: B018 (checks it)
        return self


class Encode(Section):
    """How rows become numbers."""

    categories: Literal["levels", "codes", "error"] = "levels"
    unseen: Literal["error", "missing"] = "error"
    in_memory: Literal["auto"] | bool = "auto"


def _term(text: str) -> str:
    try:
        term_of(text)
    except ParameterError as error:
        raise ValueError(str(error)) from error
    return text


# A kernel or a kind of term, as on the command line: Levels, Smooth(by=group), Periodic(year), …
TermText = Annotated[str, AfterValidator(_term)]


def _kind_of_term(value: Any) -> str:
    if isinstance(value, list):
        return "list"
    return "text" if isinstance(value, str) and value not in KERNELS else "kernel"


ColumnTerms = Annotated[
    Annotated[Kernel, Tag("kernel")]
    | Annotated[TermText, Tag("text")]
    | Annotated[list[TermText], Tag("list")],
    Discriminator(_kind_of_term),
]


class Priors(Section):
    """Priors of hyperparameters that are drawn: ``dsgp.priors.HyperPriors``."""

    lengthscale_mean: Annotated[float, Field(allow_inf_nan=False)] = HyperPriors.lengthscale_mean
    lengthscale_std: Positive = HyperPriors.lengthscale_std
    variance_shape: Positive = HyperPriors.variance_shape
    variance_rate: Positive = HyperPriors.variance_rate
    noise_shape: Positive = HyperPriors.noise_shape
    noise_rate: Positive = HyperPriors.noise_rate

    def build(self) -> HyperPriors:
        return HyperPriors(**self.model_dump())


Interactions = Literal["auto"] | Annotated[int, Field(ge=0)] | list[ColumnPair]


class Additive(Section):
    """Least squares by a function of every column: ``AdditiveGPRegressor``."""

    kernel: Kernel = Kernel()
    terms: dict[str, ColumnTerms] = {}
    interactions: Interactions = 0
    projections: Literal["auto"] | Annotated[int, Field(ge=0)] = 0
    remainder: bool | Literal["auto"] | Annotated[list[str], Field(min_length=1)] = False
    noise_terms: bool | dict[str, ColumnTerms] = False
    noise_variance: Positive | None = None
    fixed_noise: bool = False
    solver: Solver = "multigrid"
    learner: Annotated[Literal["marginal", "vbem", "em"] | None, BeforeValidator(_none_of)] = (
        "marginal"
    )
    method: Annotated[
        Literal["gibbs", "plain-gibbs", "collapsed"] | None, BeforeValidator(_none_of)
    ] = None
    n_draws: Count = 400
    n_warmup: Count = 200
    n_chains: Count = 2
    priors: Priors = Priors()
    bins: Bins = "auto"
    missing: Literal["error", "ignore"] = "error"
    missing_values: list[float] = []
    target_transform: Transform = None
    tol: Positive = 1e-4
    max_iter: Count | None = None
    learner_tol: Positive = 0.1
    learner_max_iter: Count = 100


class Pursuit(Section):
    """Least squares by functions of projections: ``ProjectionPursuitGPRegressor``."""

    fit_to: Literal["data", "residual"] = "data"
    kernel: Kernel = Kernel()
    terms: dict[str, ColumnTerms] = {}
    n_projections: Literal["auto"] | Count = "auto"
    method: Literal["refit", "greedy", "gibbs"] = "refit"
    relevance: bool = True
    n_starts: Count = 10
    n_draws: Count = 400
    n_warmup: Count = 200
    n_chains: Count = 2
    noise_variance: Positive | None = None
    fixed_noise: bool = False
    direction_uncertainty: bool = True
    solver: Solver = "multigrid"
    bins: Bins = "auto"
    target_transform: Transform = None
    tol: Positive = 1e-4
    max_iter: Count | None = None


# Options of local scoring that projections do not have, and those that counts do not.
ADDITIVE_ONLY = (
    *("multi_class", "missing", "missing_values", "interactions"),
    *("learner", "learner_tol", "learner_max_iter"),
)
LABELS_ONLY = ("link", "multi_class", "class_weight")


class Scoring(Section):
    """Local scoring: the additive or projection pursuit model of labels or counts."""

    structure: Literal["additive", "pursuit"] = "additive"
    likelihood: str | None = None
    link: Literal["logit", "probit"] = "logit"
    multi_class: Literal["softmax", "ovr"] | None = None
    class_weight: Literal["balanced"] | None = None
    kernel: Kernel | None = None  # that of the model
    terms: dict[str, ColumnTerms] = {}
    interactions: Interactions = 0
    n_projections: Literal["auto"] | Count | None = None
    solver: Solver = "multigrid"
    learner: Annotated[Literal["marginal", "independent"] | None, BeforeValidator(_none_of)] = (
        "marginal"
    )
    bins: Bins = "auto"
    missing: Literal["error", "ignore"] = "error"
    missing_values: list[float] = []
    tol: Positive = 1e-4
    max_iter: Count | None = None
    newton_max_iter: Count = 100
    learner_tol: Positive = 1e-3
    learner_max_iter: Count = 50

    @model_validator(mode="after")
    def _options_apply(self) -> Self:
        """Refuse what the structure has no use for, rather than leave it out."""
        if self.likelihood is not None and self.likelihood not in LIKELIHOODS:
            raise ValueError(
                f"likelihood: expected one of {', '.join(LIKELIHOODS)}, got {self.likelihood!r}"
            )
        if self.structure == "additive" and self.n_projections is not None:
            raise ValueError(
                "n_projections is for structure: pursuit, and structure is additive; leave it out, "
                "or say structure: pursuit"
            )
        if self.structure == "pursuit":
            for name in ADDITIVE_ONLY:
                if name in self.model_fields_set:
                    raise ValueError(
                        f"{name} is for structure: additive, and structure is pursuit; leave it out"
                    )
        return self


class Model(Section):
    """The stages of one model; at least one of them."""

    additive: Additive | None = None
    pursuit: Pursuit | None = None
    scoring: Scoring | None = None
    baseline: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, value: Any) -> Any:
        """``additive:`` with nothing behind it is YAML's null, and means its defaults."""
        if not isinstance(value, Mapping):
            return value
        stages = ("additive", "pursuit", "scoring")
        return {
            key: {} if key in stages and entry is None else entry for key, entry in value.items()
        }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        ours = [self.additive, self.pursuit, self.scoring]
        if not any(stage is not None for stage in (*ours, self.baseline)):
            raise ValueError("a model needs a stage: additive, pursuit, scoring or baseline")
        if self.baseline is not None and any(stage is not None for stage in ours):
            raise ValueError("a baseline is a model of its own; give the other stages another name")
        residual = self.pursuit is not None and self.pursuit.fit_to == "residual"
        if residual and self.additive is None:
            raise ValueError("pursuit on the residual needs an additive stage before it")
        if self.additive is not None and self.pursuit is not None and not residual:
            raise ValueError(
                "pursuit on the data does not use the additive stage before it: set fit_to: "
                "residual, or make two models"
            )
        if residual and self.additive is not None and self.additive.noise_terms:
            raise ValueError(
                "noise_terms are for the additive model, and the noise of a sum of two fits is "
                "that of the residual: with fit_to: residual leave out noise_terms"
            )
        for fitted in (self.additive, self.pursuit):
            if fitted is not None and fitted.target_transform is not None:
                if residual:
                    raise ValueError(
                        "functions of a transform and of its residual do not add up: with "
                        "fit_to: residual leave out target_transform"
                    )
                if self.scoring is not None:
                    raise ValueError("scoring has a link instead of a transform; leave it out")
        if self.scoring is not None and self.scoring.structure == "pursuit":
            for stage in ("additive", "pursuit"):
                if getattr(self, stage) is not None:
                    raise ValueError(
                        "scoring learns its own projections with structure: pursuit; leave out "
                        f"the stage {stage}, or structure"
                    )
        if self.pursuit is not None and self.scoring is not None and self.scoring.terms:
            raise ValueError("terms names columns, and this scoring has projections; use kernel")
        return self


class Evaluation(Section):
    """What is measured on the test rows."""

    level: Annotated[float, Field(gt=0, lt=1)] = 0.95


class Report(Section):
    """What is drawn."""

    figures: bool = True
