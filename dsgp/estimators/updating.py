"""Rows that are added to a fitted model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from dsgp import storage
from dsgp.errors import ParameterError, StorageError
from dsgp.estimators.conformal import warn_of_ended_calibration
from dsgp.estimators.forgetting import share_of_rows_before
from dsgp.estimators.gaussian import GaussianEstimator
from dsgp.models.additive import AdditiveModel
from dsgp.models.checks import require_choice
from dsgp.models.clock import Clock
from dsgp.models.columns import Columns
from dsgp.models.gaussian.basis import Basis
from dsgp.models.gaussian.fit import GaussianFit
from dsgp.models.gaussian.updating import Update, warn_of_misfit
from dsgp.models.gaussian_model import GaussianModel
from dsgp.rows.sources import further_rows


class UpdatedEstimator(GaussianEstimator):
    """An estimator whose rows enter through sums, to which those of further rows are added."""

    # Parameters of the estimator.
    learner: str | None
    method: str | None
    projections: str | int
    remainder: Any
    missing_values: Any

    def update(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        relearn: bool = False,
        half_life: float | None = None,
        elapsed: float | None = None,
    ) -> Self:
        r"""Add rows to the fitted model.

        The updated model takes all rows into account, with the hyperparameters that it has: the
        rows enter through sums, to which those of the new rows are added. No row of the fit is
        read again.

        Parameters
        ----------
        X : table
            New rows with the columns that the model reads, of any kind that ``fit`` takes.
        y : array_like of shape (n_rows,), dask collection, or str
            The target, or its name if it is a column of X.
        sample_weight : array_like of shape (n_rows,), dask collection or str, optional
            As for ``fit``, in the same unit.
        relearn : bool
            Learn the hyperparameters again from all rows; the initial values are those of the
            model.
        half_life : float, optional
            Forget: the weight of every earlier row is multiplied by
            :math:`2^{-\text{elapsed} / \text{half\_life}}`, and new rows count in full.
        elapsed : float, optional
            What has passed since the earlier rows, in the unit of ``half_life`` (days, rows). 1 by
            default, so that ``half_life`` is a number of updates.

        Returns
        -------
        self

        Raises
        ------
        DataError
            As for ``fit``; if a column is absent or holds something else than in the fit; or if a
            column that did not vary before, and so has no function, now does.
        ParameterError
            If the model cannot be updated, with the reason, or a parameter is out of its range.
        MemoryLimitError
            If the update would not fit into memory.
        StorageError
            If the model was saved by a release that did not keep what an update needs.

        Warns
        -----
        DataWarning
            If the residuals of all rows do not suit the noise variance that was kept, or if the
            update ends a calibration.

        Notes
        -----
        If every distinct value is kept, the result is that of a fit to all rows. If there are bins,
        they keep their edges, with new ones beyond their range and for new levels, and the sums are
        those of one pass over all rows with these edges. With ``bins="auto"`` distinct values are
        put into bins once there are as many rows as those for which ``fit`` uses bins. An
        interaction stays centred on the rows of the fit. An update that fails leaves the model as
        it was.

        With ``half_life`` the log-likelihood of a row is multiplied by the same factor as its
        weight: mean and standard deviation are those of a fit with such weights, and ``relearn``
        learns the noise variance of a new row. ``n_rows_`` counts all rows. See
        ``docs/howto/update.md``.

        Examples
        --------
        >>> import numpy as np
        >>> from dsgp import AdditiveGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (400, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(400)
        >>> model = AdditiveGPRegressor().fit(X[:200], y[:200])
        >>> before = model.predict([[1.0]], return_std=True)[1]
        >>> after = model.update(X[200:], y[200:]).predict([[1.0]], return_std=True)[1]
        >>> bool(after < before), model.n_rows_
        (True, 400)
        """
        model, basis = self._fitted, self._updatable()
        share = share_of_rows_before(half_life, elapsed)
        require_choice("relearn", relearn, (True, False))
        if relearn and self.learner is None:
            raise ParameterError(
                "relearn=True learns hyperparameters, and learner=None keeps those that were "
                "given: leave one of them out"
            )
        fit = GaussianFit.of(self.get_params(deep=False))
        clock = Clock()
        columns = self._columns
        left_out = [name for one in basis.left_out for name in one.term.columns]
        needed = tuple(dict.fromkeys([*self.used_columns_, *left_out]))
        further = further_rows(
            X,
            y,
            sample_weight,
            names=columns.names,
            needed=needed,
            named=columns.named,
            kinds=columns.kinds,
            missing=self.missing,
            missing_values=self.missing_values,
        )
        updated, facts, outcome = Update(fit, relearn, share)(
            model, self._facts, columns, further.source, further.moves, clock
        )
        calibrated, seen = self.n_calibrated_, self._seen
        self._take(
            updated, facts, Columns(columns.names, columns.named, further.kinds), clock.finish()
        )
        # Digests are of the numbers of levels, which are others now.
        self._remember_further(None if further.moves else seen, further.source)
        warn_of_ended_calibration(calibrated)
        fit.warn(outcome)
        if not relearn and self.learner is not None:
            warn_of_misfit(outcome)
        return self

    def _described(self) -> tuple[Mapping[str, Any], storage.Tree]:
        settings, tree = super()._described()
        basis = self.model_.basis
        if basis is None:
            return settings, tree
        numbers, arrays = basis.stored()
        fitted = dict(settings["fitted"]) | {"_basis": numbers}
        kept = dict(tree.get("fitted", {})) | {"_basis": arrays}
        return dict(settings) | {"fitted": fitted}, dict(tree) | {"fitted": kept}

    @classmethod
    def _model_of(cls, settings: dict[str, Any], tree: dict[str, Any]) -> GaussianModel:
        model = super()._model_of(settings, tree)
        numbers = settings["fitted"].get("_basis")
        if numbers is None or not isinstance(model.latent, AdditiveModel):
            return model
        arrays, n_missing = tree["fitted"]["_basis"], settings["fitted"]["n_missing_"]
        return replace(model, basis=Basis.restored(numbers, arrays, model.latent, n_missing))

    def _updatable(self) -> Any:
        """What rows can be added to; raises where there is nothing."""
        basis = self.model_.basis
        if basis is not None:
            return basis
        reasons = {
            "method": (
                self.method is not None,
                "draws of hyperparameters are of the rows that they were drawn for",
            ),
            "projections": (
                hasattr(self, "projections_"),
                "the directions of projections were learned from rows, and another direction "
                "needs them again",
            ),
            "remainder": (
                bool(self.remainder),
                "a remainder is a function of each row's neighbours, and no sum over the rows",
            ),
            "noise_terms": (
                self._noise is not None,
                "further rows change the noise of all rows, and so the weights of those that are "
                "summed up already",
            ),
        }
        for name, (applies, reason) in reasons.items():
            if applies:
                raise ParameterError(
                    f"a model with {name}= cannot be updated: {reason}; fit it again, on all rows"
                )
        raise StorageError(
            "the model was saved by an earlier release, which did not keep what an update needs: "
            "fit it again, on all rows, and save it"
        )

    @property
    def n_updates_(self) -> int:
        """How many times rows were added since ``fit``."""
        basis = self._fitted.basis
        return 0 if basis is None else int(basis.n_updates)
