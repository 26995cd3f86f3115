"""What fitted estimators show of themselves: a page of HTML, and a table in notebooks."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dsgp.models.summary import SummaryText


class Shown:
    """The summary of a fitted model below scikit-learn's diagram, in notebooks.

    Goes before ``BaseEstimator`` among the bases.
    """

    def summary(self) -> SummaryText:
        """Describe the fitted model."""
        raise NotImplementedError

    def _summary_html(self) -> str:
        """Return the summary of a fitted model; nothing of another one."""
        return self.summary().html if _is_fitted(self) else ""

    def _repr_html_inner(self) -> str:
        diagram: str = super()._repr_html_inner()  # type: ignore[misc]
        return diagram + self._summary_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        shown: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in shown:
            shown["text/html"] += self._summary_html()
        return shown


class Reported(Shown):
    """Reports of fitted models of tables, and what notebooks show of them."""

    def report(
        self,
        path: str | Path,
        X: Any = None,
        y: Any = None,
        *,
        target: str | None = None,
        title: str | None = None,
        level: float = 0.95,
        offset: Any = None,
        exposure: Any = None,
        trials: Any = None,
    ) -> None:
        """Write a page of HTML about the fitted model, which needs nothing else to be read.

        It says what the data were and what was done to them, what each term does (charts that
        answer to a pointer and can be printed) and how much of the variance it has, how accurate
        and how well calibrated predictions of held-out rows are, what to be careful of, and how to
        make the model again. Of a ``SmoothingSpline`` it has the one function and its slope.

        Parameters
        ----------
        path : str or Path
            A file that ends in ``.html``. What is there is replaced.
        X : table, optional
            Held-out rows, in memory, which the model was not fitted to.
        y : array_like of shape (n_rows,) or str, optional
            Their observations, or the name of the column of X that holds them. Rows without an
            observation are left out.
        target : str, optional
            Name and unit of the target; by default the name of ``y``, if it has one.
        title : str, optional
            Of the page.
        level : float in (0, 1)
            Posterior probability of the bands; intervals of shares have 90 %.
        offset, exposure, trials : array_like of shape (n_rows,) or str, optional
            Of the held-out rows, as for ``predict`` of models that have them.

        Raises
        ------
        ImportError
            If the extra ``report`` is not installed.
        DataError
            If the held-out rows lack a column of the fit, have no observation, or a class that the
            fit did not have.
        ParameterError
            If an option is out of its range, or the file has another extension.
        MemoryLimitError
            If the held-out rows are too many for their predictions to fit into memory.

        Examples
        --------
        >>> import numpy as np
        >>> from dsgp import AdditiveGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = {"a": rng.uniform(-3, 3, 300), "b": rng.uniform(-3, 3, 300)}
        >>> y = np.sin(X["a"]) + 0.3 * X["b"] + 0.1 * rng.standard_normal(300)
        >>> model = AdditiveGPRegressor().fit(X, y)
        >>> model.report("report.html")  # doctest: +SKIP
        >>> model.report("report.html", X_test, y_test)  # doctest: +SKIP
        """
        extra = {"offset": offset, "exposure": exposure, "trials": trials}
        # By its name, as the extra may not be installed and the module is of a higher floor.
        import_module("dsgp.report").write_report(
            self, path, X, y, target=target, title=title, level=level, extra=extra
        )


def _is_fitted(model: Any) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True
