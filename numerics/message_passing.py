"""State evolution of approximate message passing, iteration by iteration.

The maps are those of `derive.amp` and of the spectral side of the saddle point, applied once each per
iteration; their fixed points are the solutions of `numerics.state_evolution.solve`.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np

from derive import symbols as s
from derive.amp import output_maps
from derive.exact import ProblemError
from derive.generate import compile_function
from derive.linear import LinearChannel
from derive.model import Problem
from numerics.laws import float_law
from numerics.nodes import Nodes
from numerics.softmax import averaging_rule, check_softmax
from numerics.solution import NotConverged, magnitude
from numerics.two_sided import TwoSidedSolver
from numerics.two_sided_equations import spectral_values

__all__ = ["check_message_passing", "first_iterate", "iterates"]

_ARGUMENTS = (s.alpha, s.Delta, s.Q0, s.q, s.m, s.V)
_REPORTED = ("q", "m", "V", "trace")
# (q, m, V) -> A, M, C, gap.
Output = Callable[[dict[str, float]], dict[str, float]]


def check_message_passing(problem: Problem) -> None:
    """Refuse what the iteration is not written for.

    Raises
    ------
    ProblemError
        A student of less than full width, no penalty, or a softmax channel without numbers.
    """
    if problem.width is not None:
        raise ProblemError("message passing runs at full width: a cut in rank is not a convex penalty")
    if problem.lam == 0:
        raise ProblemError("message passing needs lam > 0: at lam = 0 its susceptibility may diverge")
    if not isinstance(problem.channel, LinearChannel):
        check_softmax(problem)


def first_iterate(problem: Problem) -> tuple[float, dict[str, float]]:
    """Where it starts, without a message before it: S = scale I, and q, m, V there.

    S = 0 for the linear task. A softmax task starts from S = I, whose fields are as large as those that
    it has to tell apart: at S = 0 the response of a message to its field is no difference of averages.
    """
    if isinstance(problem.channel, LinearChannel):
        return 0.0, {"q": 0.0, "m": 0.0, "V": 1.0}
    return 1.0, {"q": 1.0, "m": float(float_law(problem.target).mean), "V": 1.0}


@lru_cache(maxsize=1)
def _linear_maps() -> Any:
    maps = dict(zip("AMC", output_maps(LinearChannel()), strict=True))
    return compile_function("output", _ARGUMENTS, maps, "numpy", np)


def _linear_output(problem: Problem, now: dict[str, float]) -> dict[str, float]:
    alpha, noise = float(problem.alpha), float(problem.noise)
    Q0 = float_law(problem.target).Q0
    A, M, C = map(float, _linear_maps()(alpha, noise, Q0, now["q"], now["m"], now["V"]))
    return {"A": A, "M": M, "C": C, "gap": (A - M) / A}


def _softmax_output(solver: TwoSidedSolver, nodes: Nodes, now: dict[str, float]) -> dict[str, float]:
    _, found = solver.output_side(solver.Q0 - 2 * now["m"] + now["q"], now["m"], now["V"], nodes)
    if not found["A"] > 0:
        raise NotConverged(
            solver.problem, float("nan"), "message passing runs into A <= 0; try a larger lam"
        )
    return found


def _chain(problem: Problem, output: Output, iterations: int) -> Iterator[dict[str, float]]:
    law, lam = float_law(problem.target), float(problem.lam)
    _, now = first_iterate(problem)
    for _ in range(iterations):
        conjugates = output(now)
        side = spectral_values(problem.penalty, law, lam, conjugates)
        now = {k: conjugates[k] for k in "AMC"} | {k: side[k] for k in _REPORTED}
        now["excess_risk"] = side["R"]
        yield now


def iterates(problem: Problem, iterations: int) -> Iterator[dict[str, float]]:
    """A, M, C, then q, m, V, trace and excess_risk, of each iteration.

    Parameters
    ----------
    problem : Problem
        With numbers; started from `first_iterate`.
    iterations : int
        How many.

    Yields
    ------
    dict
        For a softmax task, the mean over a few quadratures, with ``error``: by how much (relative) they
        leave it uncertain.

    Raises
    ------
    NotConverged
        The channel's mean curvature is not positive at an iterate.
    ProblemError
        See `check_message_passing`.
    """
    check_message_passing(problem)
    if isinstance(problem.channel, LinearChannel):
        yield from _chain(problem, partial(_linear_output, problem), iterations)
        return
    solver = TwoSidedSolver(problem)
    rules = averaging_rule(solver).checks()
    chains = [_chain(problem, partial(_softmax_output, solver, nodes), iterations) for nodes in rules]
    for each in zip(*chains, strict=True):
        mean = {k: float(np.mean([one[k] for one in each])) for k in each[0]}
        spread = {k: float(np.std([one[k] for one in each], ddof=1)) for k in mean}
        error = max(spread[k] / magnitude(mean, k) for k in mean) / len(rules) ** 0.5
        yield mean | {"error": error}
