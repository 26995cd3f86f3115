"""Chains that are interrupted, kept on disk or sent to workers go on as if they had not been."""

import warnings

import distributed
import numpy as np
import pytest

import dsgp
from dsgp import AdditiveGPRegressor
from dsgp.errors import ParameterError, StorageError
from dsgp.kernels import Matern12, Matern52
from dsgp.models.gaussian import sampling
from dsgp.priors import HyperPriors

pytestmark = pytest.mark.filterwarnings("ignore::dsgp.errors.ConvergenceWarning")
METHODS = ["gibbs", "plain-gibbs", "collapsed"]
every_method = pytest.mark.parametrize("method", METHODS)


def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 5, (24, 2))
    return X, np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(24)


def fitted(path=None, of=None, **parameters):
    settings = {"n_draws": 12, "n_warmup": 8, "random_state": 3} | parameters
    return AdditiveGPRegressor(**settings).fit(*(of or rows()), checkpoint=path)


def interrupted(monkeypatch, path, at, **parameters):
    """Fit until a chain has done so many sweeps, and stop as by Ctrl-C."""

    def stop(bar, done, sweeps):
        if sweeps >= at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "_show_progress", stop)
        with pytest.raises(KeyboardInterrupt):
            fitted(path, **parameters)


@every_method
@pytest.mark.parametrize("at", [5, 11])  # in the warm-up, and after it
def test_an_interrupted_fit_goes_on_as_if_it_had_not_been(monkeypatch, tmp_path, method, at):
    whole = fitted(method=method)
    path = tmp_path / "chains.zarr"
    interrupted(monkeypatch, path, at, method=method)
    shown = []
    monkeypatch.setattr(sampling, "_show_progress", lambda bar, done, sweeps: shown.append(sweeps))
    again = fitted(path, method=method)
    assert at <= shown[0] < 14  # it did not start from the beginning
    assert again.draws_.identical(whole.draws_)
    np.testing.assert_array_equal(again.predict(rows()[0]), whole.predict(rows()[0]))


@every_method
def test_a_finished_run_is_made_longer(tmp_path, method):
    path = tmp_path / "chains.zarr"
    short = fitted(path, method=method, n_draws=4)
    short.save(tmp_path / "m.zarr")
    parameters = dsgp.load(tmp_path / "m.zarr").get_params()
    longer = AdditiveGPRegressor(**parameters | {"n_draws": 12}).fit(*rows(), checkpoint=path)
    assert longer.draws_.identical(fitted(method=method).draws_)
    # And one that has more draws than are asked for gives the first of them.
    assert fitted(path, method=method, n_draws=4).draws_.identical(short.draws_)


def test_chains_without_a_seed_keep_theirs(monkeypatch, tmp_path):
    path = tmp_path / "chains.zarr"
    first = fitted(path, method="gibbs", random_state=None)
    assert fitted(path, method="gibbs", random_state=None).draws_.identical(first.draws_)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"of": (rows()[0], rows()[1] + 1e-9)}, "the rows"),
        ({"kernel": Matern12()}, "terms, kernels"),
        ({"priors": HyperPriors(noise_rate=0.2)}, "priors differ"),
        ({"method": "plain-gibbs"}, "method differ"),
        ({"n_warmup": 2}, "n_warmup differ"),
        ({"n_chains": 3}, "n_chains differ"),
        ({"random_state": 4}, "random_state differ"),
    ],
)
def test_chains_of_something_else_are_refused_by_name(tmp_path, changed, named):
    path = tmp_path / "chains.zarr"
    settings = {"method": "gibbs", "n_draws": 2, "n_warmup": 1}
    fitted(path, **settings)
    with pytest.raises(StorageError, match=named):
        fitted(path, **settings | changed)
    fitted(path, **settings)


def test_a_place_for_chains_is_checked_before_the_work(tmp_path):
    with pytest.raises(ParameterError, match="method=None draws nothing"):
        fitted(tmp_path / "chains.zarr")
    fitted().save(tmp_path / "m.zarr")
    with pytest.raises(StorageError, match="a stored AdditiveGPRegressor, not chains"):
        fitted(tmp_path / "m.zarr", method="gibbs")
    (tmp_path / "other").mkdir()
    with pytest.raises(StorageError, match="not a dsgp store"):
        fitted(tmp_path / "other", method="gibbs")
    assert dsgp.load(tmp_path / "m.zarr").predict(rows()[0]).shape == (24,)


def test_fixed_parameters_are_kept_too(monkeypatch, tmp_path):
    settings = {"method": "gibbs", "kernel": Matern52(variance=1.0, fixed="variance")}
    settings |= {"fixed_noise": True, "noise_variance": 0.1}
    path = tmp_path / "chains.zarr"
    interrupted(monkeypatch, path, 6, **settings)
    assert fitted(path, **settings).draws_.identical(fitted(**settings).draws_)


def test_chains_run_on_workers_and_give_the_same_bits(monkeypatch, tmp_path):
    expected = {method: fitted(method=method).draws_ for method in METHODS}
    # Sweeps are said to be long, so that chains go to workers, and not every product of the fit.
    monkeypatch.setattr("dsgp.sampling.chains._POINT", 1.0)
    monkeypatch.setattr("dsgp.sampling.chains._NODE", 1.0)
    monkeypatch.setattr("dsgp.sampling.chains._SEGMENTS", 3)
    sent = []
    original = distributed.Client.submit

    def counted(client, function, task, *arguments, **options):
        # A task, or what is shared by many: a future.
        sent.append(getattr(getattr(task, "func", task), "__name__", ""))
        return original(client, function, task, *arguments, **options)

    monkeypatch.setattr(distributed.Client, "submit", counted)
    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        warnings.simplefilter("ignore")
        for method in METHODS:
            sent.clear()
            path = tmp_path / f"{method}.zarr"
            interrupted(monkeypatch, path, 5, method=method)
            assert fitted(path, method=method).draws_.identical(expected[method])
            assert sent.count("_advanced") >= 6  # two chains, three parts of the run
