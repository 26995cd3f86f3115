"""The bar is seen at a terminal, and leaves no trace anywhere else."""

import io
import threading
from contextlib import redirect_stderr

import pytest

from dsgp.progress import progress


class _Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


# Not a fixture: pytest puts its own stderr back between a test's set-up and its call.
def at_terminal():
    return redirect_stderr(_Terminal())


def test_bar_shows_description_steps_and_fields():
    with at_terminal() as shown, progress("solving", total=4) as bar:
        assert not bar.quiet
        bar.update(advance=3, residual=0.00123456)
    assert "solving" in shown.getvalue()
    assert "3/4" in shown.getvalue()
    assert "residual 0.00123" in shown.getvalue()


def test_a_bar_begins_again_for_another_stage():
    with at_terminal() as shown, progress("reading", total=4) as bar:
        bar.update(advance=4, stage="columns")
        bar.begin()
        bar.update(advance=4, stage="rows")
    assert "8/4" not in shown.getvalue()


def test_a_description_is_not_markup():
    with at_terminal() as shown, progress("term [0, 1]") as bar:
        bar.update()
    assert "term [0, 1]" in shown.getvalue()


def test_quiet_when_stderr_is_not_a_terminal():
    with redirect_stderr(io.StringIO()) as shown, progress("solving", total=2) as bar:
        assert bar.quiet
        bar.update(residual=1.0)
    assert shown.getvalue() == ""


def test_quiet_when_disabled():
    with at_terminal() as shown, progress("solving", enabled=False) as bar:
        bar.update()
    assert shown.getvalue() == ""


def test_quiet_without_stderr():
    with redirect_stderr(None), progress("solving") as bar:
        assert bar.quiet


def test_only_the_outermost_bar_is_shown():
    with at_terminal() as shown:
        with progress("outer", total=1) as outer:
            with progress("inner", total=1) as inner:
                assert inner.quiet
                inner.update()
            assert not outer.quiet
            outer.update()
        with progress("next") as bar:
            assert not bar.quiet
    assert "outer" in shown.getvalue()
    assert "inner" not in shown.getvalue()


def test_a_bar_in_another_thread_is_quiet():
    seen = []

    def work():
        with progress("worker") as bar:
            seen.append(bar.quiet)

    with at_terminal(), progress("caller") as bar:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert not bar.quiet
    assert seen == [True]


def test_failure_inside_frees_the_display():
    def fail():
        with progress("failing", total=9) as bar:
            assert not bar.quiet
            raise RuntimeError("inside")

    with at_terminal():
        with pytest.raises(RuntimeError, match="inside"):
            fail()
        with progress("next") as bar:
            assert not bar.quiet


def test_no_thread_is_started():
    before = threading.enumerate()
    with at_terminal(), progress("solving", total=2) as bar:
        bar.update()
        assert threading.enumerate() == before


def test_many_updates_draw_few_times():
    with at_terminal() as shown, progress("counting", total=10_000) as bar:
        for step in range(10_000):
            bar.update(step=step)
    assert "10000/10000" in shown.getvalue()
    # each drawing repeats the description; 10 a second at most
    assert shown.getvalue().count("counting") < 100


def test_output_of_the_block_stays_on_stdout(capsys):
    with at_terminal() as shown, progress("solving") as bar:
        assert not bar.quiet
        print("result")
    assert capsys.readouterr().out == "result\n"
    assert "result" not in shown.getvalue()


def test_begin_and_end_are_logged_where_there_is_no_terminal(caplog):
    caplog.set_level("INFO", "dsgp")
    with redirect_stderr(io.StringIO()), progress("solving"), progress("not", enabled=False):
        pass
    first, last = (record.getMessage() for record in caplog.records)
    assert first == "solving ..."
    assert last.startswith("solving: done in 0.")
