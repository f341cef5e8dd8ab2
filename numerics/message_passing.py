"""State evolution of approximate message passing, iteration by iteration, for the linear task.

The maps are those of `derive.amp` and of the spectral side of the saddle point, applied once each per
iteration; their fixed points are the solutions of `numerics.state_evolution.solve`.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from derive import symbols as s
from derive.amp import output_maps
from derive.exact import ProblemError
from derive.generate import compile_function
from derive.linear import LinearChannel
from derive.model import Problem
from numerics.laws import float_law
from numerics.two_sided_equations import spectral_values

__all__ = ["START", "check_message_passing", "iterates"]

# The first iterate is S = 0, without a message before it: any V may stand in the first one.
START = {"q": 0.0, "m": 0.0, "V": 1.0}
_ARGUMENTS = (s.alpha, s.Delta, s.Q0, s.q, s.m, s.V)


def check_message_passing(problem: Problem) -> None:
    """Refuse what the iteration is not written for.

    Raises
    ------
    ProblemError
        A softmax task, a student of less than full width, or no penalty.
    """
    if not isinstance(problem.channel, LinearChannel):
        raise ProblemError(
            "message passing runs for the linear task; for softmax attention it is derived "
            "(`onehead derive amp`) and its fixed points are those of `onehead solve`"
        )
    if problem.width is not None:
        raise ProblemError("message passing runs at full width: a cut in rank is not a convex penalty")
    if problem.lam == 0:
        raise ProblemError("message passing needs lam > 0: at lam = 0 its susceptibility may diverge")


@lru_cache(maxsize=1)
def _output() -> Any:
    maps = dict(zip("AMC", output_maps(LinearChannel()), strict=True))
    return compile_function("output", _ARGUMENTS, maps, "numpy", np)


def iterates(problem: Problem, iterations: int) -> Iterator[dict[str, float]]:
    """A, M, C, then q, m, V, excess_risk and trace, of each iteration.

    Parameters
    ----------
    problem : Problem
        Linear, with numbers; started from S = 0.
    iterations : int
        How many.

    Raises
    ------
    ProblemError
        See `check_message_passing`.
    """
    check_message_passing(problem)
    law = float_law(problem.target)
    alpha, lam, noise = (float(v) for v in (problem.alpha, problem.lam, problem.noise))
    now = dict(START)
    for _ in range(iterations):
        A, M, C = map(float, _output()(alpha, noise, law.Q0, now["q"], now["m"], now["V"]))
        output = {"A": A, "M": M, "C": C, "gap": (A - M) / A}
        side = spectral_values(problem.penalty, law, lam, output)
        now = {"A": A, "M": M, "C": C} | {k: side[k] for k in ("q", "m", "V", "trace")}
        now["excess_risk"] = side["R"]
        yield now
