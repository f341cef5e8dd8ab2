"""The learned S as a cut law: S = rho (S0 + tau G - theta)_+, uncut for the Frobenius penalty.

rho = M/A and tau^2 = C/M^2 (THEORY.md section 8), rho = m/Q0 for the Frobenius penalty (section 6).
"""

from dataclasses import dataclass

import numpy as np

from derive.targets import PowerLaw
from numerics.convolution import FreeConvolution
from numerics.laws import AtomicLaw, ClosedLaw, float_law
from numerics.modes import mode_values
from numerics.solution import Solution

__all__ = ["Learned", "Outlier", "has_modes", "learned"]


@dataclass(frozen=True)
class Outlier:
    """A target mode that has left the noise and passed the cut.

    ``overlap`` is the squared overlap of its eigenvector with the target's, ``transition`` the strength
    below which it would vanish (BBP); ``minimum`` is s overlap, what the eigenvector sees of the target.
    """

    k: int
    strength: float
    eigenvalue: float
    overlap: float
    minimum: float
    transition: float


@dataclass(frozen=True)
class Learned:
    """How S comes from its target.

    Attributes
    ----------
    law : Law
        Of the target.
    tau, theta, rho : float
        See above; theta = 0 for the Frobenius penalty.
    cap : float
        Largest share of eigenvalues that the width allows; infinite where nothing is cut.
    """

    law: ClosedLaw | AtomicLaw
    tau: float
    theta: float
    rho: float
    cap: float

    @property
    def nothing(self) -> bool:
        """Whether there is no spectrum to speak of: S = 0, or S = rho S0 without noise."""
        return self.rho == 0 or self.tau == 0

    def cut(self, nu: FreeConvolution, spent: float = 0.0) -> float:
        """Where the law is cut: at theta, or higher where the width (less ``spent``) runs out before."""
        cap = self.cap - spent
        if cap == np.inf:
            return -np.inf
        if nu.mass_above(nu.preimage(self.theta)) <= cap:
            return self.theta
        return max(self.theta, nu.image(nu.quantile(cap))) if cap > 0 else np.inf

    def outliers(self, d: int) -> tuple[tuple[Outlier, ...], AtomicLaw]:
        """Recovered modes of a law of atoms 1/d, and the law of the others.

        Merged nodes of a tail stay with the others. Modes above the transition but under the cut belong
        to neither: they stand apart from the noise, and the cut makes them zero.
        """
        law = self.law
        if not isinstance(law, AtomicLaw):
            raise TypeError("a continuous law has no separate modes")
        single = np.isclose(law.weights, law.weights.min())
        most = round(self.cap * d) if self.cap != np.inf else d
        floor = self.theta if self.cap != np.inf else -np.inf
        found: list[Outlier] = []
        kept = np.ones(law.values.size, dtype=bool)
        for k, index in enumerate(np.argsort(law.values)[::-1], 1):
            own = float(law.values[index])
            if own <= self.tau or not single[index]:
                break
            position, overlap = mode_values(own, self.tau)
            kept[index] = False
            if position > floor and len(found) < most:
                eigenvalue = self.rho * (position - self.theta)
                found.append(Outlier(k, own, eigenvalue, overlap, own * overlap, self.tau))
        return tuple(found), AtomicLaw(law.values[kept], law.weights[kept])


def learned(solution: Solution) -> Learned:
    """The cut law of S at a solution."""
    values = {k: float(solution.values[k]) for k in ("tau", "theta", "A", "M", "m")}
    law = float_law(solution.problem.target)
    if solution.problem.penalty == "frobenius":
        return Learned(law, values["tau"], 0.0, values["m"] / law.Q0, np.inf)
    # M = A for the linear task, in the limit too where both vanish.
    ratio = values["M"] / values["A"] if values["A"] else 1.0
    rho = 0.0 if solution.phase == "collapsed" else ratio
    return Learned(law, values["tau"], values["theta"], rho, float(solution.problem.rank_cap))


def has_modes(solution: Solution) -> bool:
    """Whether the target consists of separate modes of weight 1/d."""
    return isinstance(solution.problem.target, PowerLaw)
