"""What the eigenvectors of a learned S hold of the target, measured and predicted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive.overlaps import TERMS
from numerics.decomposition import decompose, term_values
from numerics.loss_slopes import LossSlopes, loss_slopes
from numerics.solution import Solution
from numerics.spectrum import learned_spectrum

__all__ = ["EigenvectorTheory", "Eigenvectors"]

_MOST_OUTLIERS = 5


@dataclass(frozen=True)
class Eigenvectors:
    """Eigenvectors v_i of S against S0 = sum_i s_i u_i u_i', both by decreasing eigenvalue.

    Attributes
    ----------
    learned, seen : array, shape (d,)
        Eigenvalues of S, and v_i' S0 v_i.
    target, overlaps : array, shape (d,)
        Eigenvalues s_i, and (v_i . u_i)^2.
    """

    learned: NDArray[np.float64]
    seen: NDArray[np.float64]
    target: NDArray[np.float64]
    overlaps: NDArray[np.float64]

    @classmethod
    def of(cls, S: NDArray[np.float64], S0: NDArray[np.float64]) -> "Eigenvectors":
        """Diagonalise both matrices, shape (d, d)."""
        (values, vectors), (own, directions) = np.linalg.eigh(S), np.linalg.eigh(S0)
        seen = np.einsum("ik,ij,jk->k", vectors, S0, vectors, optimize=True)
        overlaps = np.einsum("ik,ik->k", vectors, directions) ** 2
        return cls(values[::-1], seen[::-1], own[::-1], overlaps[::-1])

    def terms(self, count: int, in_q: float = 1.0, in_m: float = -2.0) -> dict[str, float]:
        """The four terms (`derive.overlaps`), the ``count`` largest eigenvectors holding the target.

        The slopes of the error are those of R unless given.
        """
        d = self.learned.size
        F, y, s = self.learned[:count], self.seen[:count], self.target[:count]
        noise, unseen = self.learned[count:], self.seen[count:]
        integrals = {
            "noise_FF": noise @ noise,
            "noise_Fy": noise @ unseen,
            "FF": F @ F,
            "Fy": F @ y,
            "yy": y @ y,
            "found": s @ s,
            "missed": self.target @ self.target - s @ s,
        }
        return term_values({name: float(value) / d for name, value in integrals.items()}, in_q, in_m)

    def to_dict(self) -> dict[str, list[float]]:
        """Plain numbers."""
        return {name: values.tolist() for name, values in vars(self).items()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Eigenvectors":
        """From `to_dict`."""
        return cls(**{name: np.asarray(values) for name, values in stored.items()})


@dataclass(frozen=True)
class EigenvectorTheory:
    """What theory says that eigenvectors measure: the terms, and the largest outliers.

    Attributes
    ----------
    values : dict
        ``over``, ``under``, ``approx``, ``mismatch``; ``outlier k`` and ``overlap k`` of separate modes.
    recovered : float
        Share of the eigenvectors that hold the target.
    slopes : LossSlopes
        Of the error.
    """

    values: dict[str, float]
    recovered: float
    slopes: LossSlopes

    @classmethod
    def of(cls, solution: Solution) -> "EigenvectorTheory":
        """Predict at a solution.

        Raises
        ------
        ArithmeticError
            As `numerics.decomposition.decompose`.
        """
        found = decompose(solution)
        values = {name: float(getattr(found, name)) for name in TERMS}
        for mode in learned_spectrum(solution, 2).outliers[:_MOST_OUTLIERS]:
            values |= {f"outlier {mode.k}": mode.eigenvalue, f"overlap {mode.k}": mode.overlap}
        return cls(values, found.recovered, loss_slopes(solution))

    def measure(self, run: Eigenvectors) -> dict[str, float]:
        """The same quantities of one run."""
        count = round(self.recovered * run.learned.size)
        values = run.terms(count, self.slopes.in_q, self.slopes.in_m)
        for k in range(sum(name.startswith("outlier") for name in self.values)):
            values |= {f"outlier {k + 1}": run.learned[k], f"overlap {k + 1}": run.overlaps[k]}
        return {name: float(value) for name, value in values.items()}
