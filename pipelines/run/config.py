"""The configuration of a chain: what a YAML file may hold, and reading it.

Only names, types and ranges are checked here; what needs the data is checked by the stages.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dsgp.errors import ParameterError
from dsgp.kernels import Matern, Matern12, Matern32, Matern52, Matern72
from dsgp.likelihoods import names as LIKELIHOODS
from dsgp.rows.sources import CsvFormat
from dsgp.terms import term_of

try:
    import yaml
    from pydantic import (
        AfterValidator,
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Discriminator,
        Field,
        Tag,
        ValidationError,
        model_validator,
    )
    from pydantic_core import ErrorDetails
except ImportError as error:
    raise ImportError(
        'the pipelines need pydantic and PyYAML: pip install ".[pipelines]" in a checkout of dsgp'
    ) from error

KERNELS = {kernel.__name__.lower(): kernel for kernel in (Matern12, Matern32, Matern52, Matern72)}

KernelName = Literal["matern12", "matern32", "matern52", "matern72"]
Solver = Literal["multigrid", "cg", "backfitting"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
# A folder of its own is named after the model.
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}$")]


class Section(BaseModel):
    """A part of the file; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _path_of(value: Any) -> Any:
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
    data_dir: Annotated[Path | None, BeforeValidator(_path_of)] = None
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
            raise ValueError("columns says which inputs are used already; leave out drop")
        if self.test is not None and "test_share" in self.model_fields_set:
            raise ValueError("test names the rows to test on already; leave out test_share")
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


class Additive(Section):
    """Least squares by a function of every column: ``AdditiveGPRegressor``."""

    kernel: Kernel = Kernel()
    terms: dict[str, ColumnTerms] = {}
    noise_variance: Positive | None = None
    fixed_noise: bool = False
    solver: Solver = "multigrid"
    learner: Annotated[Literal["marginal", "vbem"] | None, BeforeValidator(_none_of)] = "marginal"
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
    *("terms", "multi_class", "missing", "missing_values"),
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
                "n_projections is of structure: pursuit, and structure is additive; leave it out, "
                "or say structure: pursuit"
            )
        if self.structure == "pursuit":
            for name in ADDITIVE_ONLY:
                if name in self.model_fields_set:
                    raise ValueError(
                        f"{name} is of structure: additive, and structure is pursuit; leave it out"
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
                "pursuit on the data makes no use of the additive stage before it: say "
                "fit_to: residual, or make two models of them"
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
                        "scoring finds projections of its own with structure: pursuit; leave out "
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


class Config(Section):
    """A whole file."""

    name: ModelName | None = None
    task: Literal["regression", "classification", "counts"] = "regression"
    seed: int = 0
    out: Annotated[Path | None, BeforeValidator(_path_of)] = None
    load: Load
    encode: Encode = Encode()
    models: Annotated[dict[ModelName, Model], Field(min_length=1)]
    evaluation: Evaluation = Evaluation()
    report: Report = Report()

    @model_validator(mode="after")
    def _models_suit_the_task(self) -> Self:
        folded: dict[str, str] = {}
        for name, model in self.models.items():
            if folded.setdefault(name.casefold(), name) != name:
                raise ValueError(
                    f"models {folded[name.casefold()]!r} and {name!r} would share a folder where "
                    "letter case does not count; rename one"
                )
            _require_task(name, model, self.task)
        if self.load.exposure is not None and self.task != "counts":
            raise ValueError(
                f"load.exposure is for counts, and task is {self.task}; leave it out, or name that "
                "column in load.drop"
            )
        return self


def _require_task(name: str, model: Model, task: str) -> None:
    if model.baseline is not None:
        return
    if task == "regression" and model.scoring is not None:
        raise ValueError(
            f"models.{name}: scoring is for labels and counts, and task is regression; leave "
            "scoring out, or say task: classification or counts"
        )
    if task != "regression" and model.scoring is None:
        raise ValueError(
            f"models.{name}: task {task} is fitted by local scoring; add scoring: {{}}"
        )
    if task == "counts" and model.scoring is not None:
        for key in LABELS_ONLY:
            if key in model.scoring.model_fields_set:
                raise ValueError(
                    f"models.{name}.scoring.{key} is for labels, and task is counts; leave it out"
                )
    if task == "classification" and model.scoring is not None and model.scoring.likelihood:
        raise ValueError(
            f"models.{name}.scoring.likelihood is for counts, and task is classification; "
            "leave it out"
        )


# ---- reading


_BOOL, _INT, _FLOAT = (f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float"))
_RESOLVED = (_BOOL, _INT, _FLOAT)


class _Loader(yaml.SafeLoader):
    """YAML in which a key may come once only; plain YAML would drop the first of two."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} comes twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, str) else repr(key))
        return super().construct_mapping(node, deep)


# As YAML 1.2 has it: only true and false are truth values, so that columns may be called no or y,
# and 1e-4 is a number.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag not in _RESOLVED]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern, _first in (
    (_BOOL, r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    (_FLOAT, r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    (_INT, r"^[-+]?[0-9]+$", "-+0123456789"),
):
    for _letter in _first:
        _Loader.yaml_implicit_resolvers.setdefault(_letter, []).insert(
            0, (_tag, re.compile(_pattern))
        )


def read(path: Path, changes: Sequence[str] = ()) -> Config:
    """Read a YAML file.

    Parameters
    ----------
    path : Path
    changes : sequence of str
        ``KEY=VALUE`` with dots in the key, such as ``load.data=elevators``, put into the file's.

    Raises
    ------
    ParameterError
        Names every key that is wrong, what was expected and what came.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ParameterError(f"{path}: cannot be read: {reason}") from error
    document = _parse(text, str(path))
    if not isinstance(document, dict):
        raise ParameterError(
            f"{path}: expected keys such as load and models, got {_told(document)}"
        )
    for change in changes:
        _put(document, change)
    config = validated(document, str(path))
    return config if config.name else config.model_copy(update={"name": path.stem})


def validated(document: Mapping[str, Any], source: str) -> Config:
    """Check a document that has been read; see ``read``."""
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        lines = list(dict.fromkeys(_line(entry) for entry in error.errors()))
        raise ParameterError(f"{source}: {'; '.join(lines)}") from error


def _parse(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ParameterError(f"{source}: no YAML: {' '.join(str(error).split())}") from error


def _put(document: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise ParameterError(f"--set takes KEY=VALUE, such as load.data=elevators, got {change!r}")
    place: Any = document
    for name in names[:-1]:
        if place.get(name) is None:
            place[name] = {}
        place = place[name]
        if not isinstance(place, dict):
            raise ParameterError(f"--set {change}: {name} holds no further keys")
    place[names[-1]] = _parse(text, f"--set {key}")


# What pydantic calls a variant of a union, or a key of a mapping, is no key of the file.
_VARIANTS = ("constrained-", "literal[", "function-", "[key]")


def _line(entry: ErrorDetails) -> str:
    """Tell of one error: the key, what was expected, what came."""
    key = ".".join(
        str(part)
        for part in entry["loc"]
        if not (isinstance(part, str) and (part in _TYPES or part.startswith(_VARIANTS)))
    )
    kind, context = entry["type"], entry.get("ctx", {})
    if kind == "value_error":
        told = str(context["error"])
        return f"{key}: {told}" if key else told
    if kind == "extra_forbidden":
        return f"{key}: there is no such key; {_known(entry['loc'])}"
    if kind == "missing":
        return f"{key}: is required and not there"
    if kind == "string_pattern_mismatch":
        return (
            f"{key}: expected letters, digits, spaces and . _ + - (64 at most), "
            f"got {_told(entry['input'])}"
        )
    if kind == "literal_error":
        return f"{key}: expected {context['expected']}, got {_told(entry['input'])}"
    if kind in ("model_type", "dict_type"):
        return f"{key}: expected keys with values, got {_told(entry['input'])}"
    what = entry["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"{key}: expected {what}, got {_told(entry['input'])}"


_TYPES = {"int", "float", "bool", "none", "str", "nullable"}


def _known(location: tuple[int | str, ...]) -> str:
    """Name the keys of the section that a location lies in."""
    section: type[BaseModel] = Config
    for part in location[:-1]:
        section = _SECTIONS.get(str(part), section)
        if section is Config and part == "models":
            section = Model
    return f"there are: {', '.join(section.model_fields)}"


_SECTIONS: dict[str, type[BaseModel]] = {
    "load": Load,
    "encode": Encode,
    "additive": Additive,
    "pursuit": Pursuit,
    "scoring": Scoring,
    "evaluation": Evaluation,
    "report": Report,
    "kernel": Kernel,
    "terms": Kernel,
}


def _told(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
