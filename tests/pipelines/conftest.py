"""The functions of synth8d are drawn once: every configuration asks for the same."""

from functools import cache

import pytest

from pipelines.datasets import synthetic


@pytest.fixture(scope="session", autouse=True)
def drawn_once():
    draw = synthetic.additive_functions

    @cache
    def additive_functions(*arguments):
        drawn = draw(*arguments)
        for array in drawn:
            array.flags.writeable = False
        return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "additive_functions", additive_functions)
        yield
