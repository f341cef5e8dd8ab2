"""Learned eigenvalues against the predicted law of S."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from numerics.convolution import FreeConvolution
from numerics.learned import learned
from numerics.solution import Solution

__all__ = ["SpectrumMatch", "compare_spectrum", "predicted_cdf"]

# Eigenvalues below this share of the largest are the atom at zero: gradient descent leaves them small,
# not zero.
_ZERO = 1e-3


@dataclass(frozen=True)
class SpectrumMatch:
    """Kolmogorov-Smirnov distance on the continuous part, and both rank fractions."""

    ks: float
    rank_theory: float
    rank_simulated: float


def predicted_cdf(solution: Solution, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distribution function of the nonzero eigenvalues of S at the points x > 0."""
    here = learned(solution)
    nu = FreeConvolution(here.law, here.tau**2)
    points = x / here.rho + here.theta
    mass = float(solution.values["rank_fraction"]) if solution.problem.penalty == "nuclear" else 1.0
    above = np.array([nu.mass_above(nu.preimage(float(point))) for point in points])
    return np.clip(1 - above / mass, 0.0, 1.0)


def compare_spectrum(solution: Solution, spectra: list[tuple[float, ...]]) -> SpectrumMatch:
    """Compare the eigenvalues of several runs, pooled, with the theory."""
    pooled = np.sort(np.concatenate([np.asarray(values) for values in spectra]))
    if solution.problem.penalty == "nuclear":
        continuous = pooled[pooled > _ZERO * max(pooled[-1], 1e-300)]
    else:
        continuous = pooled
    rank = continuous.size / pooled.size
    if solution.phase == "collapsed" or not continuous.size:
        return SpectrumMatch(0.0, float(solution.values["rank_fraction"]), rank)
    cdf = predicted_cdf(solution, continuous)
    steps = np.arange(continuous.size + 1) / continuous.size
    ks = max(np.max(steps[1:] - cdf), np.max(cdf - steps[:-1]))
    return SpectrumMatch(float(ks), float(solution.values["rank_fraction"]), rank)
