"""Which part of the spectrum causes which part of the error (THEORY.md section 8)."""

from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import sympy as sp
from scipy.optimize import brentq

from derive import symbols as s
from derive.exact import ProblemError
from derive.generate import compile_function
from derive.overlaps import INTEGRALS, TERMS, fit, in_m, in_q, terms
from derive.targets import PowerLaw
from numerics.convolution import FreeConvolution
from numerics.laws import AtomicLaw, ClosedLaw
from numerics.learned import Learned, has_modes, learned
from numerics.loss_slopes import loss_slopes
from numerics.overlaps import band_integrals, band_nodes
from numerics.solution import Solution
from numerics.tail import MERGED_ABOVE

__all__ = ["Decomposition", "decompose", "term_record", "term_values"]


@dataclass(frozen=True)
class Decomposition:
    """error = offset + over + under + approx + mismatch: R (linear task) or the test loss (softmax).

    Attributes
    ----------
    over : float
        Eigenvectors that fit noise: what they hold of q.
    under : float
        Directions of the target that are missed, less what those eigenvectors hold of m.
    approx, mismatch : float
        Recovered directions that are only partly aligned; whose learned eigenvalue is off its best.
    offset : float
        What no eigenvalue changes: zero for R; about the loss of S = S0 for the test loss.
    recovered : float
        Directions of the target that count as recovered, over d: modes above their BBP transition and
        the cut; of a continuous law as many of the largest as its rank, or all that pass the cut.
    outliers : int
        Modes, or bands of a continuous law, that stand apart from the noise.
    fit : float
        The multiple of S0 nearest to which the error is least (one for R).
    error_estimate : float
        Relative: quadrature, slopes of the loss, and how far the sum is off the error itself.
    """

    over: float
    under: float
    approx: float
    mismatch: float
    offset: float
    recovered: float
    outliers: int
    fit: float
    error_estimate: float

    @property
    def total(self) -> float:
        """The sum of all five."""
        return self.offset + self.over + self.under + self.approx + self.mismatch


@dataclass(frozen=True)
class _Split:
    """The values of `derive.overlaps.INTEGRALS` with what is known about the split."""

    integrals: dict[str, float]
    recovered: float
    outliers: int
    error: float


def decompose(solution: Solution) -> Decomposition:
    """Split the error of any task, target and penalty over the spectrum of S.

    Modes of a power law stand where the limit d -> oo at fixed k puts them; what their finite weight 1/d
    moves is part of the noise's share of q and m, so that the sum is exact. Other laws are split by
    their bands: the largest eigenvalues, as many as the rank of S0, hold the target. Where a gap parts
    them from the rest they are the signal band.

    Raises
    ------
    ProblemError
        A power law with so many modes that its tail is merged.
    ArithmeticError
        The test loss does not grow with q, so that no eigenvalue is best.
    """
    problem = solution.problem
    if isinstance(problem.target, PowerLaw) and problem.target.modes > MERGED_ABOVE:
        raise ProblemError(
            f"the decomposition is over separate modes: take at most {MERGED_ABOVE} of them (--cutoff)"
        )
    slopes = loss_slopes(solution)
    if not slopes.in_q > 0:
        raise ArithmeticError(
            f"the test loss falls with q (slope {slopes.in_q:.2g}) at {problem.describe()}: no learned "
            "eigenvalue is best there"
        )
    split = _split(solution)
    q, m, Q0 = (float(v) for v in (solution.values["q"], solution.values["m"], learned(solution).law.Q0))
    values = term_values(split.integrals, slopes.in_q, slopes.in_m)
    total = float(_total()(q, m, Q0, slopes.in_q, slopes.in_m)[0])
    linear = problem.task == "linear"
    error = float(solution.values["excess_risk" if linear else "test_loss"])
    offset = 0.0 if linear else error - total
    missing = abs(sum(values.values()) - total) / (abs(error) or 1.0)
    estimate = split.error + slopes.error + missing + solution.error_estimate
    return Decomposition(
        **values,
        offset=offset,
        recovered=split.recovered,
        outliers=split.outliers,
        fit=float(fit().subs({in_q: slopes.in_q, in_m: slopes.in_m})),
        error_estimate=estimate,
    )


def term_record(solution: Solution) -> dict[str, Any]:
    """The terms at a solution as a row of numbers, with the error that they make up."""
    found = decompose(solution)
    error = "excess_risk" if solution.problem.task == "linear" else "test_loss"
    row: dict[str, Any] = {"lam": float(solution.problem.lam)}
    row |= {"alpha_bar": float(solution.problem.alpha_bar)} | asdict(found)
    return row | {"total": found.total, error: float(solution.values[error])}


def term_values(integrals: dict[str, float], e_q: float, e_m: float) -> dict[str, float]:
    """The four terms from `derive.overlaps.INTEGRALS` and the slopes of the error."""
    found = _terms()(*(integrals[name] for name in INTEGRALS), e_q, e_m)
    return dict(zip(TERMS, map(float, found), strict=True))


@lru_cache(maxsize=1)
def _terms() -> Any:
    arguments = (*(sp.Symbol(name, real=True) for name in INTEGRALS), in_q, in_m)
    outputs = {name: terms()[name] for name in TERMS}
    return compile_function("terms", arguments, outputs, "numpy", np)


@lru_cache(maxsize=1)
def _total() -> Any:
    arguments = (s.q, s.m, s.Q0, in_q, in_m)
    return compile_function("total", arguments, {"total": terms()["total"]}, "numpy", np)


# --- integrals ------------------------------------------------------------------------------------


def _split(solution: Solution) -> _Split:
    here = learned(solution)
    Q0 = here.law.Q0
    if here.rho == 0:
        return _Split(dict.fromkeys(INTEGRALS, 0.0) | {"missed": Q0}, 0.0, 0, 0.0)
    if here.tau == 0:
        whole = {"FF": here.rho**2 * Q0, "Fy": here.rho * Q0, "yy": Q0, "found": Q0}
        rank = float(solution.problem.target.rank_fraction)
        return _Split(dict.fromkeys(INTEGRALS, 0.0) | whole, rank, 1, 0.0)
    return _over_modes(solution, here) if has_modes(solution) else _over_bands(solution, here)


def _over_modes(solution: Solution, here: Learned) -> _Split:
    d = solution.problem.target.dimension or 1
    modes, _ = here.outliers(d)
    own, F, y = (
        np.array([getattr(mode, name) for mode in modes])
        for name in ("strength", "eigenvalue", "minimum")
    )
    found = {"FF": F @ F / d, "Fy": F @ y / d, "yy": y @ y / d, "found": own @ own / d}
    noise = {
        "noise_FF": float(solution.values["q"]) - found["FF"],
        "noise_Fy": float(solution.values["m"]) - found["Fy"],
        "missed": here.law.Q0 - found["found"],
    }
    return _Split(noise | found, len(modes) / d, len(modes), 0.0)


def _over_bands(solution: Solution, here: Learned) -> _Split:
    nu = FreeConvolution(here.law, here.tau**2)
    cut, rank = here.cut(nu), float(solution.problem.target.rank_fraction)
    bands = nu.bands()
    border, apart = _border(nu, bands, rank)
    kept = {"noise": np.zeros(4), "signal": np.zeros(4)}
    error = 0.0
    for low, high in bands:
        pieces = {"noise": (max(low, cut), min(high, border)), "signal": (max(low, cut, border), high)}
        for side, (start, stop) in pieces.items():
            if start < stop:
                integrals, change = band_integrals(nu, start, stop, here.theta)
                kept[side] += integrals
                error += change
    recovered = min(rank, float(kept["signal"][0])) if cut > border else rank
    found = here.law.Q0 if recovered == rank else _largest(here.law, recovered)
    scale = np.array([1, here.rho**2, here.rho, 1])
    _, noise_FF, noise_Fy, _ = kept["noise"] * scale
    _, FF, Fy, yy = kept["signal"] * scale
    values = (noise_FF, noise_Fy, FF, Fy, yy, here.law.Q0 - found, found)
    standing = sum(high > cut and low >= border for low, high in bands) if apart else 0
    return _Split(dict(zip(INTEGRALS, map(float, values), strict=True)), recovered, standing, error)


def _border(nu: FreeConvolution, bands: list[tuple[float, float]], rank: float) -> tuple[float, bool]:
    """Where the largest eigenvalues, as many as the rank of S0, begin; whether in a gap."""
    if rank >= 1:
        return -np.inf, False
    for (_, low), (high, _) in pairwise(bands):
        middle = (low + high) / 2
        if abs(nu.mass_above(nu.preimage(middle)) - rank) < _COUNTED:
            return middle, True
    return nu.image(nu.quantile(rank)), False


_COUNTED = 1e-9


def _largest(law: ClosedLaw | AtomicLaw, mass: float) -> float:
    """Int s^2 over the largest eigenvalues of the target, of that total mass."""
    if isinstance(law, AtomicLaw):
        order = np.argsort(law.values)[::-1]
        before = np.cumsum(law.weights[order]) - law.weights[order]
        taken = np.clip(mass - before, 0, law.weights[order])
        return float(taken @ law.values[order] ** 2)
    low, high = law.support[-1]

    def above(cut: float, power: int) -> float:
        x, weights = band_nodes(cut, high, _NODES)
        return float(weights @ (x**power * -law.stieltjes(x + 0j)[0].imag / np.pi))

    cut = low if above(low, 0) <= mass else brentq(lambda c: above(c, 0) - mass, low, high, xtol=1e-15)
    return above(cut, 2)


_NODES = 400
