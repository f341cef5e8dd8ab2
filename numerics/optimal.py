"""The penalty of least risk: a scan for the global minimum, then the stationarity equation."""

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from numerics.float_solver import FloatSolver, State

__all__ = ["best_state"]

_SCAN = 40


def best_state(solver: FloatSolver, lowest: float, top: float) -> State | None:
    """Minimise the excess risk over t = theta/tau between the limit lam -> 0+ and collapse.

    The risk can have several minima in t (a staircase of recovered modes), so the whole range is
    scanned first.

    Parameters
    ----------
    solver : FloatSolver
        Its lam is not used.
    lowest, top : float
        t at lam -> 0+ and at collapse.

    Returns
    -------
    State or None
        None if the risk is least at lam -> 0+.
    """

    def state_at(t: float) -> State | None:
        state = solver.on_ray(t, "optimal")
        return state if state is not None and solver.is_physical(state) else None

    def risk(t: float) -> float:
        state = state_at(t)
        return float("inf") if state is None else solver.outputs(state)["excess_risk"]

    def slope(t: float) -> float:
        state = state_at(t)
        return float("-inf") if state is None else float(solver.residuals(state)[0])

    ts = np.linspace(lowest, top, _SCAN + 1)
    risks = [risk(t) for t in ts]
    best = int(np.argmin(risks))
    if best == 0 and slope(ts[0]) >= 0:
        return None
    low, high = ts[max(best - 1, 0)], ts[min(best + 1, _SCAN)]
    if slope(low) < 0 < slope(high):
        t = brentq(slope, low, high, xtol=1e-14)
    else:
        t = minimize_scalar(risk, bounds=(low, high), method="bounded", options={"xatol": 1e-9}).x
    return state_at(float(t))
