"""How far a float64 solution is from the exact one, in relative terms."""

import numpy as np
from numpy.typing import NDArray

from numerics.float_solver import FloatSolver, State

__all__ = ["relative_error"]

# Rounding of one evaluation of the scaled equations, measured against 40-digit solves.
_ROUNDING = 4e-15


def relative_error(solver: FloatSolver, state: State, values: dict[str, float]) -> float:
    """Largest relative error of ``values`` (absolute where a value vanishes).

    The residual under a finer quadrature plus rounding is carried to (tau2, theta) by the inverse
    Jacobian, and from there to every output by finite differences.

    Parameters
    ----------
    values : dict
        The outputs at ``state``; those that are not finite are left out.
    """
    finer = FloatSolver(solver.problem, order=24)

    def moved(log_tau2: float, t: float) -> State:
        tau2 = state.tau2 * float(np.exp(log_tau2))
        theta = (state.theta / state.tau2**0.5 + t) * tau2**0.5
        return finer.at(tau2, theta, state.closing, state.moments.point)

    check = finer.at(state.tau2, state.theta, state.closing, state.moments.point)
    reference = finer.outputs(check)
    keys = [k for k in values if np.isfinite(values[k])]
    error = {k: abs(reference[k] - values[k]) + _ROUNDING * abs(values[k]) for k in keys}
    noise = np.abs(finer.residuals(check)) + _ROUNDING * _rounding_scales(state)
    shift = np.abs(np.linalg.inv(finer.jacobian(check))) @ noise
    for direction, size in zip(np.eye(2), shift, strict=True):
        h = max(float(size), 1e-7)
        there = finer.outputs(moved(*(h * direction)))
        for key in keys:
            error[key] += abs(there[key] - reference[key]) / h * float(size)
    # m can vanish by symmetry; q sets its scale.
    sizes = {k: abs(values[k]) if k != "m" else max(abs(values[k]), values["q"]) for k in keys}
    return max(error[k] / sizes[k] if sizes[k] else 0.0 for k in keys)


def _rounding_scales(state: State) -> NDArray[np.float64]:
    """Size of the terms that cancel in the scaled residuals: theta A against lam, A against zero."""
    t = state.theta / state.tau2**0.5
    closing = {"shrinkage": t, "interpolating": 1.0, "unpenalised": 0.0}[state.closing]
    return np.array([closing, 1.0])
