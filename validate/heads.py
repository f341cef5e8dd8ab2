"""Spectra of query-key maps W_Q W_K' of real attention heads, with the single-head theory fitted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numerics.bulk_fit import BulkFit, fit_bulk
from validate.checkpoint import Head

__all__ = ["HEADS_NOTE", "HeadSpectrum", "head_spectrum"]

Array = NDArray[np.float64]

_LEAST_RANK = 1e-12  # relative; below it a singular value is rounding
_TAIL = 5


@dataclass(frozen=True)
class HeadSpectrum:
    """Singular values of one head's map, and what they are like.

    Attributes
    ----------
    layer, head : str, int
        Where it stands.
    dimension, size : int
        d and the width p of the head.
    values : array, shape (p,)
        Singular values from the largest, in the weights' own units.
    fit : BulkFit
        Noise bulk and outliers.
    stable_rank : float
        norm_F^2/norm_2^2.
    tail, tail_error : float
        Hill estimate, from the sqrt(p) (at least 5) largest, of gamma in s_i ~ i^(-gamma), with its
        standard error gamma/sqrt(number).
    """

    layer: str
    head: int
    dimension: int
    size: int
    values: Array
    fit: BulkFit
    stable_rank: float
    tail: float
    tail_error: float

    def row(self) -> dict[str, Any]:
        """Numbers for a table."""
        return {
            "layer": self.layer,
            "head": self.head,
            "d": self.dimension,
            "p": self.size,
            "norm": float(self.values[0]),
            "bulk_edge": self.fit.edge,
            "outliers": len(self.fit.outliers),
            "stable_rank": self.stable_rank,
            "tail_gamma": self.tail,
            "tail_error": self.tail_error,
            "scale": self.fit.scale,
            "shift": self.fit.shift,
            "ks": self.fit.distance,
            "fits": self.fit.accepted,
        }

    def to_dict(self) -> dict[str, Any]:
        """The row with the outliers and all singular values."""
        outliers = [vars(outlier) for outlier in self.fit.outliers]
        return self.row() | {"outlier_values": outliers, "singular_values": self.values.tolist()}


def head_spectrum(head: Head) -> HeadSpectrum:
    """Singular values of W_Q W_K' and their fit.

    Theory is about one tied head, whose map S is symmetric and positive; an untied head's map is
    neither, so the fit to its singular values is a heuristic, and ``fits`` says whether it holds.

    Raises
    ------
    ProblemError
        The head has too few singular values that differ from zero.
    """
    values = _singular_values(head.query, head.key)
    kept = values[values > _LEAST_RANK * values[0]] if values[0] > 0 else values[:0]
    fit = fit_bulk(kept, head.query.shape[0])
    tail, error = _hill(kept)
    stable = float((values @ values) / values[0] ** 2)
    d, p = head.query.shape
    return HeadSpectrum(head.layer, head.head, d, p, values, fit, stable, tail, error)


def _singular_values(query: Array, key: Array) -> Array:
    """Of query key', shape (d, d) and rank at most p, through the triangular factors of both."""
    left, right = (np.asarray(np.linalg.qr(matrix, mode="r")) for matrix in (query, key))
    return np.asarray(np.linalg.svd(left @ right.T, compute_uv=False), dtype=float)


def _hill(values: Array) -> tuple[float, float]:
    """Hill (1975): mean of log(s_i/s_(m+1)) over the m largest."""
    count = min(max(_TAIL, round(values.size**0.5)), values.size - 1)
    gamma = float(np.mean(np.log(values[:count] / values[count])))
    return gamma, gamma / count**0.5


HEADS_NOTE = (
    "Singular values of W_Q W_K' (biases and rotary phases left out): a semicircle of radius 2 scale, "
    "shrunk by scale*shift and cut at the width p, with the outliers above its edge. fits: the rest "
    "agrees with it (Kolmogorov-Smirnov, 5 %). Theory is about a tied head, so for untied ones this is "
    "a heuristic. tail_gamma: Hill estimate of gamma in s_i ~ i^(-gamma)."
)
