"""How the error of a solution changes with q and m: where a learned eigenvalue should be."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from derive.gaussian import PRICE_AVERAGES, price_slopes
from derive.generate import compile_function
from derive.overlaps import linear_slopes
from numerics.nodes import Geometry, Nodes, lattice, sobol
from numerics.solution import Solution
from numerics.two_sided import TwoSidedSolver

__all__ = ["LossSlopes", "loss_slopes"]


@dataclass(frozen=True)
class LossSlopes:
    """Slopes in q and m of the error (R of the linear task, else the test loss); their error."""

    in_q: float
    in_m: float
    error: float


def loss_slopes(solution: Solution) -> LossSlopes:
    """Slopes at a solution.

    Notes
    -----
    Of a softmax task they are averages of the loss's derivatives over (u0, omega), which are smooth: the
    minimiser does not enter, and label noise outside the softmax averages out, since they are linear in
    it. The error is relative, the spread of several rules.
    """
    if solution.problem.task == "linear":
        in_q, in_m = map(float, linear_slopes())
        return LossSlopes(in_q, in_m, 0.0)
    solver = TwoSidedSolver(solution.problem)
    q, m = (float(solution.values[k]) for k in ("q", "m"))
    # The seed keeps the digits of b^2 = q - m^2/Q.
    b2 = float(np.exp(solution.seed[1])) if q else 0.0
    at = Geometry(solver.field_variance, m, b2**0.5, 0.0)
    found = np.array(
        [_function()(*solver.loss_derivatives(nodes, at), at.Q, m) for nodes in _rules(solver)]
    )
    in_q, in_m = found.mean(0)
    spread = np.std(found, axis=0, ddof=1) / len(found) ** 0.5
    return LossSlopes(float(in_q), float(in_m), float(np.max(spread / np.abs([in_q, in_m]))))


def _rules(solver: TwoSidedSolver) -> list[Nodes]:
    if solver.rows.tokens == 2:
        return [lattice(step, 6.5) for step in (0.5, 0.36)]
    return [sobol(_POINTS, solver.rows.size, 0, seed) for seed in range(_REPLICAS)]


_POINTS, _REPLICAS = 13, 8


@lru_cache(maxsize=1)
def _function() -> Any:
    return compile_function("slopes", PRICE_AVERAGES, price_slopes(), "numpy", np)
