"""Which part of the spectrum causes which part of the excess risk (linear task, THEORY.md section 8)."""

from dataclasses import dataclass

import numpy as np

from derive.exact import ProblemError
from derive.targets import PowerLaw
from numerics.laws import target_atoms
from numerics.modes import mode_values
from numerics.precision import context
from numerics.solution import Solution
from numerics.tail import MERGED_ABOVE

__all__ = ["Decomposition", "decompose"]


@dataclass(frozen=True)
class Decomposition:
    """R = over + under + approx + mismatch, each per d.

    Attributes
    ----------
    over : float
        Noise directions that are fitted: what the bulk holds of q.
    under : float
        Target directions that are missed, less twice what the bulk holds of m.
    approx, mismatch : float
        Recovered modes whose direction, or whose eigenvalue, is off.
    recovered : int
        Modes above the BBP transition and the cut.
    """

    over: float
    under: float
    approx: float
    mismatch: float
    recovered: int

    @property
    def total(self) -> float:
        """The sum of the four."""
        return self.over + self.under + self.approx + self.mismatch


def decompose(solution: Solution) -> Decomposition:
    """Split R over the modes of a power-law target; the four terms add up to R.

    Modes stand where the limit d -> oo at fixed k puts them; what their finite weight 1/d moves is part
    of the bulk's share of q and m, so that the sum is exact.

    Raises
    ------
    ProblemError
        A target without separate modes, a softmax task, direct training or a narrow student.
    """
    problem = solution.problem
    target = problem.target
    if not isinstance(target, PowerLaw) or target.modes > MERGED_ABOVE:
        raise ProblemError(
            "the decomposition is over separate modes: take a power-law target with no more than "
            f"{MERGED_ABOVE} of them"
        )
    plain = problem.task == "linear" and problem.penalty == "nuclear" and problem.width is None
    if not plain:
        raise ProblemError("the decomposition is that of the linear task at full width, nuclear penalty")
    atoms = np.array(target_atoms(target, context(20))[0], dtype=float)
    tau, theta = float(solution.values["tau"]), float(solution.values["theta"])
    above = atoms[atoms > tau]
    position, overlap, misaligned, mismatched = mode_values(above, tau, theta)
    kept = position > theta
    own, x, w = above[kept], position[kept] - theta, overlap[kept]
    d, q, m = target.d, float(solution.values["q"]), float(solution.values["m"])
    bulk_q, bulk_m = q - float((x**2).sum()) / d, m - float((own * w * x).sum()) / d
    missed = float(target.Q0) - float((own**2).sum()) / d
    return Decomposition(
        bulk_q,
        missed - 2 * bulk_m,
        float(misaligned[kept].sum()) / d,
        float(mismatched[kept].sum()) / d,
        int(kept.sum()),
    )
