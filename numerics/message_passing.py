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
from derive.spectra import CUT_MOMENTS
from numerics.convolution import CutValues, FreeConvolution
from numerics.laws import float_law
from numerics.two_sided_equations import SPECTRAL, spectral_function

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
    return compile_function("output", _ARGUMENTS, output_maps(LinearChannel()), "numpy", np)


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
    Q0, mean = float(law.Q0), float(law.mean)
    now = dict(START)
    for _ in range(iterations):
        A, M, C = map(float, _output()(alpha, noise, Q0, now["q"], now["m"], now["V"]))
        if problem.penalty == "frobenius":
            moments, tau2, theta = CutValues(1, 0, 0, 0, 0, 0, 0, 0, 0j), 0.0, 0.0
            gap = (A + lam - M) / (A + lam)
        else:
            tau2, theta, gap = C / M**2, lam / M, (A - M) / A
            moments, _ = FreeConvolution(law, tau2).capped_cut(theta, 1.0)
        values = spectral_function(problem.penalty)(
            *(A, gap, C, lam, Q0, mean, tau2, theta, moments.defect),
            *(getattr(moments, name) for name in CUT_MOMENTS.values()),
        )
        side = {k: float(v) for k, v in zip(SPECTRAL, values, strict=True)}
        now = {"A": A, "M": M, "C": C} | {k: side[k] for k in ("q", "m", "V", "trace")}
        now["excess_risk"] = side["R"]
        yield now
