"""Data that a fitted sum of terms keeps beyond its equations, so that rows can be added to it.

The equations of a fitted model are for targets less the constant, and less the bias of bins; the
basis has those of the target itself, and the cuts of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dsgp import kernels
from dsgp.additive.joining import with_information
from dsgp.models.additive import AdditiveModel
from dsgp.models.columns import Columns
from dsgp.models.gaussian.rows import Constant, Training
from dsgp.rows.coding import BinsOfRows, PairedBins, TermCut
from dsgp.rows.encode import Bins
from dsgp.terms import BoundTerm, Codes, Floats

_NUMBERS = (
    *("quadratic", "total_information", "offset", "scale", "weight_scale"),
    *("log_jacobian", "n_rows", "n_updates"),
)


@dataclass(frozen=True)
class Basis:
    """Data kept beyond the equations of an ``AdditiveModel``.

    Attributes
    ----------
    information : ndarray of shape (Σ U_d,)
    quadratic, total_information : float
        As for the equations, of (y − offset) / scale and weights / weight_scale.
    offset, scale, weight_scale : float
    spreads, cuts, places, left_out, n_missing
        As for ``Training``.
    log_jacobian : float
        As for ``Target``.
    n_rows : int
        All rows of positive weight so far.
    n_updates : int
    """

    information: Floats
    quadratic: float
    total_information: float
    offset: float
    scale: float
    weight_scale: float
    spreads: list[Floats] | None
    cuts: list[TermCut] | None
    places: list[Codes] | None
    left_out: list[Constant]
    n_missing: dict[str, int]
    log_jacobian: float
    n_rows: int
    n_updates: int = 0

    @classmethod
    def of(
        cls, training: Training, log_jacobian: float, n_rows: int | None = None, n_updates: int = 0
    ) -> Self:
        """Return the basis of training rows; ``n_rows`` of None is that of their sums."""
        equations = training.equations
        return cls(
            equations.information,
            equations.quadratic,
            equations.total_information,
            training.offset,
            training.scale,
            training.weight_scale,
            training.spreads,
            training.cuts,
            training.places,
            training.left_out,
            training.n_missing,
            log_jacobian,
            int(equations.n_rows) if n_rows is None else n_rows,
            n_updates,
        )

    def training(self, latent: AdditiveModel, columns: Columns) -> Training:
        """Return the training rows of a model, with its kernels."""
        return Training(
            names=columns.names,
            named=columns.named,
            terms=[term.bound for term in latent.terms],
            constant=[one.term.name for one in self.left_out],
            equations=with_information(
                latent.equations, self.information, self.quadratic, self.total_information
            ),
            offset=self.offset,
            scale=self.scale,
            weight_scale=self.weight_scale,
            spreads=self.spreads,
            n_missing=self.n_missing,
            left_out=self.left_out,
            cuts=self.cuts,
            places=self.places,
        )

    # ------------------------------------------------------------------ storing

    def stored(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return settings that JSON can hold, and arrays."""
        settings: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        settings["left_out"] = [
            {
                "name": one.term.name,
                "kernel": one.term.kernel.to_settings(),
                "bound": one.term.to_settings(),
                "ends": [
                    None if np.isnan(low) else [low, high]
                    for low, high in zip(one.low, one.high, strict=True)
                ],
            }
            for one in self.left_out
        ]
        arrays: dict[str, Any] = {"information": self.information}
        if self.spreads is not None:
            arrays["spreads"] = {str(d): spread for d, spread in enumerate(self.spreads)}
        if self.cuts is not None and self.places is not None:
            pairs = [_stored_cut(cut) for cut in self.cuts]
            settings["cuts"] = [numbers for numbers, _ in pairs]
            arrays["cuts"] = {
                str(d): kept | {"places": places.astype(np.int64)}
                for d, ((_, kept), places) in enumerate(zip(pairs, self.places, strict=True))
            }
        return settings, arrays

    @classmethod
    def restored(
        cls,
        settings: Mapping[str, Any],
        arrays: Mapping[str, Any],
        latent: AdditiveModel,
        n_missing: dict[str, int],
    ) -> Self:
        """Undo ``stored``; the store was checked."""
        n_terms = len(latent.terms)
        spreads = cuts = places = None
        if "spreads" in arrays:
            spreads = [arrays["spreads"][str(d)] for d in range(n_terms)]
        if "cuts" in settings:
            kept = arrays.get("cuts", {})
            cuts = [
                _restored_cut(term.bound, settings["cuts"][d], kept[str(d)])
                for d, term in enumerate(latent.terms)
            ]
            places = [kept[str(d)]["places"] for d in range(n_terms)]
        return cls(
            information=arrays["information"],
            spreads=spreads,
            cuts=cuts,
            places=places,
            left_out=[_restored_constant(one) for one in settings["left_out"]],
            n_missing=n_missing,
            **{name: settings[name] for name in _NUMBERS},
        )

    def updated(self, training: Training, n_rows: int, log_jacobian: float) -> Basis:
        """Return the basis of training rows that further ones were added to."""
        return Basis.of(training, log_jacobian, n_rows, self.n_updates + 1)


def _restored_constant(stored: Mapping[str, Any]) -> Constant:
    kernel = kernels.from_settings(stored["kernel"])
    term = BoundTerm.from_settings(stored["name"], kernel, stored["bound"])
    ends = [(np.nan, np.nan) if one is None else one for one in stored["ends"]]
    return Constant(
        term, tuple(float(low) for low, _ in ends), tuple(float(high) for _, high in ends)
    )


def _stored_cut(cut: TermCut) -> tuple[dict[str, Any], dict[str, Any]]:
    """Numbers and arrays of a cut."""
    numbers: dict[str, Any] = {"exact": cut.bins.exact, "high": cut.high}
    arrays: dict[str, Any] = {"edges": cut.bins.edges, "origin": cut.bins.origin}
    if cut.levels is not None:
        arrays["levels"] = cut.levels
    if cut.pairs is not None:
        first, other = cut.pairs.first, cut.pairs.other
        numbers |= {
            "other_exact": other.bins.exact,
            "side_highs": [float(first.high), float(other.high)],
        }
        arrays |= {
            "other_edges": other.bins.edges,
            "other_origin": other.bins.origin,
            "first_mean": first.mean,
            "first_variance": first.variance,
            "other_mean": other.mean,
            "other_variance": other.variance,
        }
    return numbers, arrays


def _restored_cut(
    term: BoundTerm, numbers: Mapping[str, Any], arrays: Mapping[str, Any]
) -> TermCut:
    bins = Bins(arrays["edges"], arrays["origin"], numbers["exact"])
    if "other_edges" not in arrays:
        return TermCut(term, bins, numbers["high"], arrays.get("levels"))
    high, other_high = numbers["side_highs"]
    other = Bins(arrays["other_edges"], arrays["other_origin"], numbers["other_exact"])
    pairs = PairedBins(
        BinsOfRows(bins, arrays["first_mean"], arrays["first_variance"], high),
        BinsOfRows(other, arrays["other_mean"], arrays["other_variance"], other_high),
    )
    return TermCut(term, bins, numbers["high"], pairs=pairs)
