"""How far a float64 solution is from the exact one, in relative terms."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numerics.float_solver import MOMENTS, FloatSolver, State
from numerics.solution import magnitude

__all__ = ["relative_error"]

# Rounding of one cut moment, measured against 40-digit solves.
_ROUNDING = 2e-15
_SHIFT = 1e-6


def relative_error(solver: FloatSolver, state: State, values: dict[str, float]) -> float:
    """Largest relative error of ``values`` (see `numerics.solution.magnitude`).

    Each cut moment is uncertain by its change under a finer quadrature plus rounding. First-order
    propagation carries that to the outputs and to the residuals, and the inverse Jacobian carries the
    residuals to (tau2, theta) and so to the outputs once more.

    Parameters
    ----------
    values : dict
        The outputs at ``state``; those that are not finite are left out.
    """
    keys = [k for k in values if np.isfinite(values[k])]
    finer = FloatSolver(solver.problem, order=24)

    def outputs(at: State) -> NDArray[np.float64]:
        found = solver.outputs(at)
        return np.array([found[k] for k in keys])

    def moved(log_tau2: float, t: float) -> State:
        tau2 = state.tau2 * float(np.exp(log_tau2))
        theta = (state.theta / state.tau2**0.5 + t) * tau2**0.5
        return solver.at(tau2, theta, state.closing, state.moments.point)

    check = finer.at(state.tau2, state.theta, state.closing, state.moments.point)
    reference, residual = outputs(check), finer.residuals(check)
    error = np.zeros(len(keys))
    noise: NDArray[Any] = np.abs(residual)
    for name in MOMENTS:
        value = getattr(check.moments, name)
        uncertainty = abs(value - getattr(state.moments, name)) + _ROUNDING * abs(value)
        shift = _SHIFT * abs(value) or _SHIFT
        bumped = replace(check, moments=replace(check.moments, **{name: value + shift}))
        error += np.abs(outputs(bumped) - reference) * (uncertainty / shift)
        noise = noise + np.abs(finer.residuals(bumped) - residual) * (uncertainty / shift)
    distance = np.abs(np.linalg.inv(finer.jacobian(check))) @ (noise + np.finfo(float).eps)
    for direction, size in zip(np.eye(2), distance, strict=True):
        h = max(float(size), 1e-7)
        error += np.abs(outputs(moved(*(h * direction))) - outputs(state)) * (float(size) / h)
    scale = np.array([magnitude(values, k) for k in keys])
    return float(np.max(error / scale)) + _ROUNDING
