"""Damage to stored models, and what must come of it: `python -m tests.golden.damage CASES SEED`.

A store of today's format is refused by an error that names the file or the setting, or predicts
what it did, bit for bit. A store that was damaged by someone who also computed its digest again is
refused by an error of the house, or loads; it never raises another error, and never takes long.
"""

import json
import shutil
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

import dsgp
from dsgp import storage
from dsgp.errors import DsgpError, StorageError
from dsgp.kernels import Matern32
from dsgp.storage.documents import root_digest, setting_checksums
from dsgp.storage.files import file_table
from tests.golden import make

ARCHIVE = Path(__file__).with_name("stores.zip")
ROOT = "zarr.json"
# CPU seconds in which anything is refused.
LIMIT = 1.0
ODD = ("text", "", None, True, -1, 0, 1e308, -1e-308, 10**30, [], {}, [[1.0]], {"type": "Matern52"})


def newer(folder):
    """Stores of kinds that the archive has none of: draws, levels, multipliers, noise by cell."""
    X, targets = make.table()
    X = X.assign(group=np.array(["a", "b", "c"])[X["week"].astype(int) % 3])
    sampled = dsgp.AdditiveGPRegressor(
        method="collapsed", n_draws=4, n_warmup=4, n_chains=1, random_state=0
    )
    sampled.fit(X[["age", "dose"]], targets["number"]).save(folder / "draws.zarr")
    terms = [dsgp.Smooth("age", by="dose"), dsgp.Levels("group"), dsgp.Smooth("week", by="group")]
    listed = dsgp.AdditiveGPRegressor(terms=terms, bins=None, learner_max_iter=3)
    listed.fit(X, targets["number"]).save(folder / "terms.zarr")
    field = make.field()[1]
    noise = field.fillna(0) * 0 + 0.02
    kernels = {"time": Matern32(60.0, 1.0), "x": Matern32(2.0, 1.0)}
    dsgp.GridGP(kernels, noise, learner=None).fit(field).save(folder / "grid-noise.zarr")


def stores(folder):
    """Make a store of every kind in today's format; return their paths."""
    with TemporaryDirectory() as old:
        shutil.unpack_archive(ARCHIVE, old)
        for name in (*make.tables(), *make.fields()):
            dsgp.load(Path(old) / f"{name}.zarr").save(folder / f"{name}.zarr")
    newer(folder)
    return sorted(folder.glob("*.zarr"))


def answers(model):
    """What a model says, as arrays by name."""
    if isinstance(model, dsgp.GridGP):
        return make.answers_of_field(model)
    X = make.new_rows(make.table()[0])
    names = getattr(model, "feature_names_in_", ["age"])
    if "group" in names:
        X = X.assign(group=pd.Series(["a", "b", "c", "a"] * 3, index=X.index))
    return make.answers_of_table(model, X[list(names)])


def same(some, others):
    return set(some) == set(others) and all(
        np.asarray(some[name]).tobytes() == np.asarray(others[name]).tobytes() for name in some
    )


# ---------------------------------------------------------------------- damage


def harmed(content, how, rng):
    """Bytes of a file, damaged."""
    at = int(rng.integers(len(content))) if content else 0
    if how == "flip" and content:
        flipped = content[at] ^ (1 << int(rng.integers(8)))
        return content[:at] + bytes([flipped]) + content[at + 1 :]
    if how == "cut":
        return content[:at]
    if how == "append":
        return content + bytes(rng.integers(0, 256, 3).astype(np.uint8))
    if how == "zeros":
        return bytes(len(content))
    return b""


BYTES = ("flip", "cut", "append", "zeros", "empty")


def leaves(value, path=()):
    """Paths of all values within settings."""
    if isinstance(value, dict | list) and value:
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*path, key))
    yield path


def edited(settings, path, rng):
    """Settings with one value altered or taken away."""
    changed = json.loads(json.dumps(settings))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    value, choice = inner[path[-1]], int(rng.integers(4))
    if choice == 0:
        del inner[path[-1]]
    elif choice == 1 and isinstance(value, int | float) and not isinstance(value, bool):
        inner[path[-1]] = value * (1 + 2.0 ** -int(rng.integers(1, 50))) + (value == 0)
    else:
        inner[path[-1]] = ODD[int(rng.integers(len(ODD)))]
    return changed


def sealed(root, settings):
    """Write other settings to a root file, with checksums that agree with them."""
    document = json.loads(root.read_text())
    document["attributes"]["settings"] = settings
    document["attributes"]["checksums"] = setting_checksums(settings)
    document["attributes"]["digest"] = root_digest(document)
    root.write_text(json.dumps(document))


def sealed_files(path):
    """Compute the checksums of all files again."""
    root = path / ROOT
    document = json.loads(root.read_text())
    document["attributes"]["files"] = file_table(path)
    document["attributes"]["digest"] = root_digest(document)
    root.write_text(json.dumps(document))


def harmed_array(array, rng):
    """An array with other numbers, another shape or another type."""
    choice = int(rng.integers(7))
    if choice == 0:
        return array[..., :-1] if array.ndim else array
    if choice == 1:
        return np.concatenate([array, array[:1]])
    if choice == 2:
        return array[None]
    if choice == 3:
        return array.astype(np.int8) if array.dtype.kind == "f" else array.astype(np.float64)
    values = array.copy()
    if values.size and values.dtype.kind == "f":
        odd = (np.nan, np.inf, -1e300, 0.0)[int(rng.integers(4))]
        values.flat[int(rng.integers(values.size))] = odd
    elif values.size and values.dtype.kind in "iu":
        info = np.iinfo(values.dtype)
        values.flat[int(rng.integers(values.size))] = int(rng.choice([info.min, info.max]))
    return values


# ---------------------------------------------------------------------- verdicts


def refused(path, known, names):
    """Load a damaged store; return how it ended, and fail unless that is as promised."""
    began = time.process_time()
    try:
        model = dsgp.load(path)
    except StorageError as error:
        message = str(error)
    else:
        assert same(answers(model), known), f"{path}: other predictions without a word"
        return "same"
    finally:
        assert time.process_time() - began < LIMIT
    assert any(name in message for name in names), (names, message)
    return "refused"


def ended(path):
    """Load a store whose digest agrees with what was changed in it."""
    began = time.process_time()
    try:
        dsgp.load(path)
    except DsgpError:
        return "refused"
    finally:
        assert time.process_time() - began < LIMIT
    return "loaded"


def damage_bytes(path, known, rng, name, how):
    """Damage one file, see what comes of it, and put it back."""
    file = path / name
    content = file.read_bytes()
    try:
        if how == "delete":
            file.unlink()
        else:
            file.write_bytes(harmed(content, how, rng))
        root = ("zarr.json", "setting", "not a dsgp store")
        return refused(path, known, root if name == ROOT else (name,))
    finally:
        file.write_bytes(content)


def swap(path, other, known, name):
    """Put a file of another model in the place of one of this, and put it back."""
    content = (path / name).read_bytes()
    try:
        (path / name).write_bytes((other / name).read_bytes())
        return refused(path, known, (name,))
    finally:
        (path / name).write_bytes(content)


def edit(path, known, rng, seal):
    """Change a setting; with ``seal`` the checksums too."""
    root = path / ROOT
    content = root.read_bytes()
    document = json.loads(content)
    settings = document["attributes"]["settings"]
    paths = [one for one in leaves(settings) if one]
    chosen = paths[int(rng.integers(len(paths)))]
    changed = edited(settings, chosen, rng)
    try:
        if seal:
            sealed(root, changed)
            return ended(path)
        document["attributes"]["settings"] = changed
        root.write_text(json.dumps(document))
        return refused(path, known, (f"setting '{chosen[0]}",))
    finally:
        root.write_bytes(content)


def rewrite(path, rng, folder):
    """Write the store with one array changed, and all checksums."""
    kind, settings, tree = storage.read(path)
    paths = [one for one in leaves(tree) if one and isinstance(_at(tree, one), np.ndarray)]
    chosen = paths[int(rng.integers(len(paths)))]
    inner = _at(tree, chosen[:-1])
    if rng.integers(8):
        inner[chosen[-1]] = harmed_array(inner[chosen[-1]], rng)
    else:
        del inner[chosen[-1]]
    storage.write(folder / "rewritten.zarr", kind, settings, tree, overwrite=True)
    return ended(folder / "rewritten.zarr")


def _at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def case(paths, known, rng, folder):
    """Do one random damage to one random store; return what was done and how it ended."""
    path = paths[int(rng.integers(len(paths)))]
    files = sorted(str(f.relative_to(path)) for f in path.rglob("*") if f.is_file())
    name = files[int(rng.integers(len(files)))] if rng.integers(3) else ROOT
    what = ("bytes", "bytes", "delete", "swap", "edit", "sealed", "rewrite")[int(rng.integers(7))]
    if what == "bytes":
        how = BYTES[int(rng.integers(len(BYTES)))] if name != ROOT else "flip"
        return what, damage_bytes(path, known[path], rng, name, how)
    if what == "delete":
        return what, damage_bytes(path, known[path], rng, name, "delete")
    if what == "swap":
        others = [o for o in paths if o != path and (o / name).exists() and name != ROOT]
        if not others:
            return what, "no other"
        return what, swap(path, others[int(rng.integers(len(others)))], known[path], name)
    if what == "rewrite":
        return what, rewrite(path, rng, folder)
    return what, edit(path, known[path], rng, what == "sealed")


def main(n_cases, seed):
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "stores").mkdir()
        paths = stores(folder / "stores")
        known = {path: answers(dsgp.load(path)) for path in paths}
        counts, began = Counter(), time.process_time()
        for number in range(n_cases):
            rng = np.random.default_rng([seed, number])
            try:
                counts[case(paths, known, rng, folder)] += 1
            except Exception as error:
                counts["FAILED"] += 1
                print(number, type(error).__name__, str(error)[:300], flush=True)
        print(*counts.items(), sep="\n")
        print(f"{time.process_time() - began:.1f} CPU seconds")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
