"""Learned eigenvalues against the predicted law of S."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from numerics.convolution import FreeConvolution
from numerics.learned import learned
from numerics.solution import Solution

__all__ = ["ZERO", "SpectrumMatch", "compare_spectrum", "share_above"]

# Eigenvalues below this share of the largest are the atom at zero: gradient descent leaves them small,
# not zero.
ZERO = 1e-3


@dataclass(frozen=True)
class SpectrumMatch:
    """Kolmogorov-Smirnov distance on the continuous part, and both rank fractions."""

    ks: float
    rank_theory: float
    rank_simulated: float


def share_above(solution: Solution, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Predicted share of the eigenvalues of S above each of the points x (> 0, nuclear penalty)."""
    here = learned(solution)
    nu = FreeConvolution(here.law, here.tau**2)
    points = nu.preimages(x / here.rho + here.theta)
    above = np.array([nu.mass_above(complex(point)) for point in points])
    if solution.problem.penalty == "nuclear":  # a width keeps the largest
        above = np.minimum(above, float(solution.values["rank_fraction"]))
    return above


def compare_spectrum(solution: Solution, spectra: list[tuple[float, ...]]) -> SpectrumMatch:
    """Compare the eigenvalues of several runs, pooled, with the theory.

    The distance is between the laws of the eigenvalues above the same small floor, so that what the
    optimiser leaves instead of zeros does not count; how many there are is the rank fraction's business.
    """
    pooled = np.sort(np.concatenate([np.asarray(values) for values in spectra]))
    nuclear = solution.problem.penalty == "nuclear"
    floor = ZERO * max(pooled[-1], 1e-300) if nuclear else -np.inf
    continuous = pooled[pooled > floor]
    rank = continuous.size / pooled.size
    expected = float(solution.values["rank_fraction"])
    if solution.phase == "collapsed" or not continuous.size:
        return SpectrumMatch(0.0, expected, rank)
    whole = float(share_above(solution, np.array([floor]))[0]) if nuclear else 1.0
    cdf = np.clip(1 - share_above(solution, continuous) / whole, 0.0, 1.0)
    steps = np.arange(continuous.size + 1) / continuous.size
    ks = max(np.max(steps[1:] - cdf), np.max(cdf - steps[:-1]))
    return SpectrumMatch(float(ks), expected, rank)
