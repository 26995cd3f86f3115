"""What a configuration asks for in vain is reported before the first stage."""

import pandas as pd
import pytest

from dsgp.errors import DataError, ParameterError
from pipelines.run.config import validated
from pipelines.run.plan import plan_of


def planned(models, task="regression", **load):
    document = {"task": task, "load": {"data": "synth8d", **load}, "models": models}
    return plan_of(validated(document, "test"))


COMPLETE = {"type": "matern52", "lengthscale": 1.0, "variance": 1.0}
IMPOSSIBLE = {
    "rough projections": ({"m": {"pursuit": {"kernel": "matern12"}}}, r"models\.m\.pursuit: "),
    "no noise": ({"m": {"additive": {"fixed_noise": True}}}, r"models\.m\.additive: fixed_noise"),
    "no hyperparameters": ({"m": {"additive": {"learner": "none"}}}, "a kernel has no lengthscale"),
    "no noise to keep": (
        {"m": {"additive": {"learner": "none", "kernel": COMPLETE}}},
        "keeps noise_variance",
    ),
    "grouped by itself": (
        {"m": {"additive": {"terms": {"x1": "Smooth(by=x1)"}}}},
        r"models\.m\.additive: .*by names its own column 'x1'",
    ),
    "nothing to fix": (
        {"m": {"additive": {"kernel": {"fixed": ["lengthscale"]}}}},
        r"models\.m: .*marked fixed but has no value",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_parameters_are_checked_before_the_data_are_read(case):
    models, message = IMPOSSIBLE[case]
    with pytest.raises(ParameterError, match=message):
        planned(models)


def test_columns_of_a_file_are_looked_up(tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"a": [1.0], "b": [2.0], "y": [3.0]}).to_csv(path, sep=";", index=False)
    file = {"data": str(path), "target": "y"}
    with pytest.raises(DataError, match=r"no column 'y'.* separated by ';'"):
        planned({"m": {"additive": {}}}, **file)
    file["delimiter"] = ";"
    terms = {"m": {"additive": {"terms": {"z": "matern32"}}}}
    with pytest.raises(ParameterError, match=r"models\.m\.additive: terms names \['z'\]"):
        planned(terms, **file)
    with pytest.raises(DataError, match="no column 'z'"):
        planned({"m": {"additive": {}}}, drop=["z"], **file)
    assert planned({"m": {"additive": {"terms": {"a": "matern32"}}}}, **file)
    kept = {"learner": "none", "kernel": COMPLETE}
    assert planned({"m": {"scoring": kept}}, task="classification", **file)


@pytest.mark.parametrize("data", ["{}", "{}/*.csv"])
def test_columns_of_folders_and_patterns_are_looked_up(tmp_path, data):
    for k in range(2):
        pd.DataFrame({"a": [1.0], "b": [2.0], "y": [3.0]}).to_csv(
            tmp_path / f"{k}.csv", index=False
        )
    table = {"data": data.format(tmp_path), "target": "y"}
    with pytest.raises(DataError, match=r"there is no column 'z'"):
        planned({"m": {"additive": {}}}, drop=["z"], **table)
    with pytest.raises(ParameterError, match=r"models\.m\.additive: terms names \['z'\]"):
        planned({"m": {"additive": {"terms": {"z": "matern32"}}}}, **table)
    assert planned({"m": {"additive": {"terms": {"a": "matern32"}}}}, **table)


def test_addresses_are_refused_since_their_changes_are_not_seen():
    with pytest.raises(ParameterError, match=r"'s3://b/\*\.csv' is an address"):
        planned({"m": {"additive": {}}}, data="s3://b/*.csv", target="y")
