"""How the command answers at once, and how it ends whatever happens."""

import json
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest
import typer
import xarray as xr

import dsgp
from dsgp import cli
from dsgp.cli import endings, prediction, sources
from dsgp.errors import DataError, DataWarning
from dsgp.when_imported import when_imported

HEAVY = {"numba", "dask", "distributed", "sklearn", "scipy", "xarray", "pandas", "zarr", "pyarrow"}
IMPORTED = """
import json, sys
from dsgp.cli import main
try:
    main(sys.argv[1:])
finally:
    print("\\n" + json.dumps(sorted(name for name in sys.modules if "." not in name)))
"""


def python(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["fit", "--help"], 0),
        (["predict", "--help"], 0),
        (["smooth", "--help"], 0),
        (["info", "--help"], 0),
        (["fti"], 2),
        (["fit", "a.csv", "--tagret", "y", "--out", "m.zarr"], 2),
        (["fit", "a.csv", "--target", "y", "--out", "m.zarr", "--model", "aditive"], 2),
        (["predict", "m.zarr"], 2),
    ],
)
def test_help_and_typing_errors_import_nothing_that_computes(arguments, code):
    end = python(IMPORTED, *arguments)
    assert end.returncode == code, end.stderr
    assert not HEAVY & set(json.loads(end.stdout.splitlines()[-1]))
    assert "Traceback" not in end.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit absent.csv --target y --out m.zarr", "there is no file 'absent.csv'; check the path"),
        ("predict m.zarr absent.csv --out p.csv", "there is no 'm.zarr'; check the path"),
        ("predict . absent.csv --out p.csv", "there is no file 'absent.csv'; check the path"),
        ("forecast . --ahead 3 --out p.csv --holidays h.csv", "there is no file 'h.csv'"),
        ("evaluate . absent.csv --target y", "there is no file 'absent.csv'; check the path"),
        ("report . -o r.html --data absent.csv --target y", "there is no file 'absent.csv'"),
        ("smooth sea.nc --out out.zarr", "there is no 'sea.nc'; check the path"),
        ("info file:///absent.zarr", "there is no '/absent.zarr'; check the path"),
    ],
)
def test_mistyped_paths_are_reported_before_anything_that_computes(arguments, message, tmp_path):
    end = python(IMPORTED, *arguments.split(), cwd=tmp_path)
    assert end.returncode == 1
    assert end.stderr.startswith(f"Error: {message}")
    assert not HEAVY & set(json.loads(end.stdout.splitlines()[-1]))


def test_accessors_are_registered_whichever_is_imported_first():
    shown = "print(sorted(n for n in dir(xarray.DataArray([1.0]).dsgp) if n[0] != '_'))"
    for imports in ("import dsgp, xarray", "import xarray, dsgp", "import xarray.core, dsgp"):
        end = python(f"{imports}\nimport xarray\n{shown}\nprint(xarray.Dataset().dsgp)")
        assert end.stdout.startswith("['fill', 'interp', 'smooth']"), end.stderr
        assert (end.returncode, end.stderr) == (0, "")
    # Looking for the module without importing it does not use the action up.
    looked = "import dsgp, importlib.util\nspec = importlib.util.find_spec('xarray')\n"
    end = python(
        f"{looked}import xarray\nassert type(xarray.__loader__) is type(spec.loader)\n{shown}"
    )
    assert "interp" in end.stdout, end.stderr


def test_an_action_of_a_module_that_is_there_runs_now():
    calls = []
    when_imported("json", lambda: calls.append(1))
    before = list(sys.meta_path)
    when_imported("no_such_module_of_dsgp", lambda: calls.append(2))
    with pytest.raises(ImportError):
        __import__("no_such_module_of_dsgp")
    sys.meta_path[:] = before
    assert calls == [1]


def test_accessors_are_those_of_the_library():
    assert isinstance(xr.DataArray([1.0]).dsgp, dsgp.accessor.DataArrayAccessor)
    assert isinstance(xr.Dataset().dsgp, dsgp.accessor.DatasetAccessor)


# ---------------------------------------------------------------- errors that nobody expected


@pytest.fixture
def failing(monkeypatch, tmp_path):
    """Return the end of ``dsgp info``, in which an error is raised."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.zarr").mkdir()

    def end(error, *options):
        def fail(_path):
            raise error

        monkeypatch.setattr(prediction, "load", fail)
        cli.main(["info", "m.zarr", *options])

    return end


@pytest.mark.parametrize(
    "error",
    [
        ValueError("two\nlines"),
        ZeroDivisionError(),
        KeyError("a"),
        RecursionError("deep"),
        AssertionError(),
        ExceptionGroup("several", [ValueError("a")]),
    ],
)
def test_an_unexpected_error_says_where_to_report_it(failing, capsys, error):
    with pytest.raises(SystemExit) as end:
        failing(error)
    assert end.value.code == 1
    line, *more = capsys.readouterr().err.splitlines()
    assert not more
    for words in ("Error: ", type(error).__name__, "report it", "--debug"):
        assert words in line


@pytest.mark.parametrize("error", [ValueError("why"), DataError("why"), OSError("why")])
def test_debug_shows_the_traceback_wherever_it_stands(failing, error):
    with pytest.raises(type(error), match="why"):
        failing(error, "--debug")
    with pytest.raises(type(error), match="why"):
        cli.main(["--debug", "info", "m.zarr"])


def test_too_little_memory_is_no_defect(failing, capsys):
    with pytest.raises(SystemExit):
        failing(MemoryError("Unable to allocate 1 TiB"))
    message = capsys.readouterr().err
    assert "not enough memory" in message
    assert "1 TiB" in message
    assert "defect" not in message


def test_the_place_for_reports_is_that_of_the_package(failing, capsys, monkeypatch):
    class Metadata:
        def get_all(self, _name):
            return ["Documentation, https://docs.example", "Issues, https://issues.example"]

    monkeypatch.setattr(endings, "metadata", lambda _name: Metadata())
    with pytest.raises(SystemExit):
        failing(ValueError())
    assert "report it at https://issues.example, " in capsys.readouterr().err


def test_other_applications_end_the_same_way(capsys):
    app = typer.Typer()

    @app.command()
    def one() -> None:
        raise ValueError("why")

    with pytest.raises(SystemExit) as end:
        endings.run_app(app, "other", [])
    assert end.value.code == 1
    assert "ValueError: why" in capsys.readouterr().err
    with pytest.raises(ValueError, match="why"):
        endings.run_app(app, "other", ["--debug"])


# ---------------------------------------------------------------- processes

WAITING = """
import sys, time
from types import SimpleNamespace
from dsgp.cli import main
from dsgp.cli.commands import info as command

def info(path, _options=None):
    try:
        print("working", flush=True)
        time.sleep(60)
    finally:
        print("cleaning", flush=True)
        time.sleep(float(str(path)))
        print("clean", flush=True)

command.work_of = lambda name, **_: SimpleNamespace(info=info)
main(["info", sys.argv[1]])
"""


@pytest.mark.parametrize(
    ("seconds", "n_interrupts", "shown"), [("0", 1, ["cleaning", "clean"]), ("60", 2, ["cleaning"])]
)
def test_one_interrupt_cleans_up_and_a_second_ends_at_once(seconds, n_interrupts, shown):
    command = [sys.executable, "-c", WAITING, seconds]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        guard = threading.Timer(30, process.kill)
        guard.start()
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        lines = [process.stdout.readline().strip()]
        if n_interrupts == 2:
            process.send_signal(signal.SIGINT)
        lines += process.stdout.read().split()
        err = process.stderr.read()
        guard.cancel()
    assert lines == shown
    assert process.returncode not in (0, -signal.SIGKILL)
    assert "Traceback" not in err
    assert ("twice" in err) == (n_interrupts == 2)


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_reader_that_leaves_is_no_error(closed):
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {closed: writing}
    command = ["--help"] if closed == "stdout" else ["info", "no.zarr"]
    process = subprocess.Popen([sys.executable, "-m", "dsgp.cli", *command], **streams)
    os.close(writing)
    out, err = process.communicate(timeout=60)
    assert b"Traceback" not in (out or b"") + (err or b"")
    assert b"Exception ignored" not in (err or b"")
    assert process.returncode == 1


def test_letters_that_a_terminal_lacks_are_shown_otherwise():
    end = subprocess.run(
        [sys.executable, "-m", "dsgp.cli", "predict", "--help"],
        capture_output=True,
        timeout=60,
        env=os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
    )
    assert (end.returncode, end.stderr) == (0, b"")
    assert b"\\u2026" in end.stdout  # part-00000.parquet, …


def test_a_warning_is_shown_once(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = cli._shown_once()
        for text in (
            "a level that no training row had",
            "a level that no training row had",
            "else",
        ):
            warnings.warn(text, DataWarning, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == [
        "Warning: a level that no training row had",
        "Warning: else",
    ]


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "dsgp", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"dsgp {dsgp.__version__}\n")


def test_warnings_name_options_instead_of_parameters(capsys):
    show = cli._shown_once()
    show('skewed: target_transform="log" or target_transform="yeo-johnson" helps')
    show('of a field: transform="log" helps')
    assert capsys.readouterr().err.splitlines() == [
        "Warning: skewed: --transform log or --transform yeo-johnson helps",
        "Warning: of a field: --transform log helps",
    ]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_table_where_a_field_is_expected_is_named_as_one(tmp_path, name):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"t\.\w+' is a table; .* dsgp fit takes tables"):
        sources._open(tmp_path / name, None, in_chunks=False)
