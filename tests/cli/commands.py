"""How tests run the commands of ``dsgp``."""

import pytest
from typer.testing import CliRunner

from dsgp.cli import app, main


def invoke(*arguments):
    """Return what a command printed, its exit code, and the error that ended it, if any."""
    return CliRunner().invoke(app, list(map(str, arguments)))


def run(*arguments):
    """Return what a command printed; raise the error that ends it."""
    result = invoke(*arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def completed(*arguments):
    """Return what a command printed, which has to end well."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def run_main(*arguments):
    """Run a command as the shell does, which has to end well."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    assert end.value.code in (0, None)


def smooth(*arguments):
    """Return what ``dsgp smooth`` printed, which has to end well."""
    return completed("smooth", *arguments)
