"""The configuration of a chain: a whole YAML file, and reading it.

Only names, types and ranges are checked here; what needs the data is checked by the stages.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dsgp.errors import ParameterError
from pipelines.run.sections import (
    LABELS_ONLY,
    Additive,
    Encode,
    Evaluation,
    Kernel,
    Load,
    Model,
    ModelName,
    Pursuit,
    Report,
    Scoring,
    Section,
    path_of,
)

try:
    import yaml
    from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator
    from pydantic_core import ErrorDetails
except ImportError as error:
    raise ImportError(
        'the pipelines need pydantic and PyYAML: pip install ".[pipelines]" in a checkout of dsgp'
    ) from error


class Config(Section):
    """A whole file."""

    name: ModelName | None = None
    task: Literal["regression", "classification", "counts"] = "regression"
    seed: int = 0
    out: Annotated[Path | None, BeforeValidator(path_of)] = None
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
            "scoring out, or set task: classification or counts"
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
                    None, None, f"key {key!r} occurs twice", key_node.start_mark
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
            f"{path}: expected keys such as load and models, got {_shown(document)}"
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
    """Describe one error: the key, what was expected, what came."""
    key = ".".join(
        str(part)
        for part in entry["loc"]
        if not (isinstance(part, str) and (part in _TYPES or part.startswith(_VARIANTS)))
    )
    kind, context = entry["type"], entry.get("ctx", {})
    if kind == "value_error":
        message = str(context["error"])
        return f"{key}: {message}" if key else message
    if kind == "extra_forbidden":
        return f"{key}: there is no such key; {_known(entry['loc'])}"
    if kind == "missing":
        return f"{key}: is required and missing"
    if kind == "string_pattern_mismatch":
        return (
            f"{key}: expected letters, digits, spaces and . _ + - (64 at most), "
            f"got {_shown(entry['input'])}"
        )
    if kind == "literal_error":
        return f"{key}: expected {context['expected']}, got {_shown(entry['input'])}"
    if kind in ("model_type", "dict_type"):
        return f"{key}: expected keys with values, got {_shown(entry['input'])}"
    what = entry["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"{key}: expected {what}, got {_shown(entry['input'])}"


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


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
