"""The float64 solver of the reduced state evolution (nuclear penalty).

Newton on the generated equations from a nearby solution or a few fixed-point iterations; if that
fails, nested bracketing in t = theta/tau, along which lam increases. A bracketed root is then polished
by Newton like any other.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from derive.model import Problem
from numerics.convolution import CutValues, FreeConvolution
from numerics.equations import Equations, equations
from numerics.laws import float_law
from numerics.solution import NotConverged

__all__ = ["MOMENTS", "FloatSolver", "State"]

MOMENTS = tuple(f.name for f in fields(CutValues) if f.name != "point")
# Residual at which Newton has converged. Near the bulk edge psi carries a rounding of up to 1e-10
# of itself; the residual goes into the error estimate, so nothing is hidden by it.
_TOLERANCE = 1e-9
_ITERATIONS = 200  # a step changes tau2 by a factor e at the most, and tau can be tiny
_ADVICE = "try a start from a neighbouring alpha or lam (`onehead curve`), or a larger lam"


@dataclass(frozen=True)
class State:
    """A point (tau2, theta) with its cut moments.

    ``closing`` says which equation it solves besides the width equation, ``capped`` whether the
    student's width sets the cut.
    """

    tau2: float
    theta: float
    moments: CutValues
    closing: str
    capped: bool = False
    residual: float = float("inf")

    @property
    def arguments(self) -> tuple[float, ...]:
        """Cut moments in the order of the generated functions."""
        return tuple(getattr(self.moments, name) for name in MOMENTS)


class FloatSolver:
    """All that is fixed while (tau2, theta) vary: law, parameters, generated equations.

    With an ``order`` (nodes on a panel of the contour) it is a check on the solver without: the tail of
    a long power law is merged less as well.
    """

    def __init__(self, problem: Problem, order: int | None = None) -> None:
        self.problem, self.order = problem, order
        self.law = float_law(problem.target, fine=order is not None)
        self.alpha, self.lam, self.noise = map(float, (problem.alpha, problem.lam, problem.noise))
        self.cap = float(problem.rank_cap)
        self.Q0 = self.law.Q0
        self.equations: Equations = equations("numpy", np)

    @property
    def collapsed_tau2(self) -> float:
        """tau2 at S = 0, where R = Q0."""
        return float((self.Q0 + self.noise / 2) / (2 * self.alpha))

    def collapsed_end(self) -> tuple[float, float]:
        """tau2 at S = 0 and the upper edge of the spectrum there: S = 0 from lam = 4 alpha edge on."""
        tau2 = self.collapsed_tau2
        return (tau2, FreeConvolution(self.law, tau2).top_edge()) if tau2 else (0.0, 0.0)

    # --- one point ----------------------------------------------------------------------------

    def at(self, tau2: float, theta: float, closing: str, guess: complex | None = None) -> State:
        """Evaluate the cut moments; at width p the cut is the p-th largest eigenvalue."""
        nu = FreeConvolution(self.law, tau2, self.order)
        moments, capped = nu.capped_cut(theta, self.cap, guess)
        return State(tau2, theta, moments, closing, capped)

    def _arguments(self, state: State) -> tuple[float, ...]:
        parameters = (state.tau2, state.theta, self.alpha, self.lam, self.noise, self.Q0)
        return parameters + state.arguments

    def residuals(self, state: State) -> np.ndarray[Any, Any]:
        """Closing and width residual, scaled to order one."""
        closing, width = self.equations.residuals[state.closing](*self._arguments(state))
        return np.array([closing, width]) / self._scales(state)

    def _scales(self, state: State) -> np.ndarray[Any, Any]:
        tau = state.tau2**0.5
        scale = {"shrinkage": 4 * self.alpha * tau, "interpolating": 4 * self.alpha, "unpenalised": tau}
        return np.array([scale.get(state.closing, 4 * tau), state.tau2])

    def jacobian(self, state: State) -> np.ndarray[Any, Any]:
        """Derivatives of the scaled residuals in (log tau2, theta/tau)."""
        rows = np.array(self.equations.jacobians[state.closing](*self._arguments(state)))
        rows = rows.reshape(2, 2) / self._scales(state)[:, None]
        tau = state.tau2**0.5
        log_tau2 = rows[:, 0] * state.tau2 + rows[:, 1] * state.theta / 2
        # The scales are powers of tau themselves.
        powers = np.array([0.0 if state.closing == "interpolating" else 0.5, 1.0])
        log_tau2 -= powers * self.residuals(state)
        return np.stack([log_tau2, rows[:, 1] * tau], axis=1)

    def outputs(self, state: State) -> dict[str, float]:
        """Everything that is reported, tau and theta included."""
        values = self.equations.outputs[state.closing](*self._arguments(state))
        return {k: float(v) for k, v in zip(self.equations.names, values, strict=True)}

    # --- Newton -------------------------------------------------------------------------------

    def newton(self, state: State) -> State:
        """Damped Newton in (log tau2, theta/tau); returns the best point reached."""
        residual = self.residuals(state)
        for _ in range(_ITERATIONS):
            norm = float(np.max(np.abs(residual)))
            if norm < 1e-15:
                break
            try:
                step = np.linalg.solve(self.jacobian(state), -residual)
            except np.linalg.LinAlgError:
                break
            step *= min(1.0, 1.0 / np.max(np.abs(step)))
            new = self._search(state, step, norm)
            if new is None:
                break
            state, residual = new
        return replace(state, residual=float(np.max(np.abs(residual))))

    def _search(
        self, state: State, step: np.ndarray[Any, Any], norm: float
    ) -> tuple[State, np.ndarray[Any, Any]] | None:
        t = state.theta / state.tau2**0.5
        # Near convergence only rounding can make a full step fail, and halving it does not help.
        for halving in range(12 if norm > _TOLERANCE else 1):
            d_log, d_t = step * 0.5**halving
            tau2 = state.tau2 * float(np.exp(d_log))
            # Rounding must not leave a theta that the closing equation sets to zero.
            theta = 0.0 if state.closing == "unpenalised" else max(t + float(d_t), 0.0) * tau2**0.5
            new = self.at(tau2, theta, state.closing, state.moments.point if not halving else None)
            residual = self.residuals(new)
            if np.max(np.abs(residual)) < norm and self.is_physical(new):
                return new, residual
        return None

    # --- starts -------------------------------------------------------------------------------

    def start(self, closing: str) -> State:
        """A few damped fixed-point iterations of the state evolution from the collapsed end."""
        tau2 = self.collapsed_tau2
        theta = min(self.lam / (4 * self.alpha), 1.5 * tau2**0.5)
        state = self.at(tau2, theta, closing)
        for _ in range(3):
            risk = self.outputs(state)["excess_risk"]
            tau2 = max((risk + self.noise / 2) / (2 * self.alpha), 1e-3 * tau2)
            A = max(4 * self.alpha - 2 * state.moments.psi, 0.4 * self.alpha)
            theta = min(self.lam / A, 1.9 * tau2**0.5)
            state = self.at(tau2, theta, closing, state.moments.point)
        while not self.is_physical(state) and theta < 2 * tau2**0.5:  # A < 0: cut more
            theta += 0.2 * tau2**0.5
            state = self.at(tau2, theta, closing, state.moments.point)
        return state

    def near_collapse(self, closing: str, top: float) -> State:
        """Tau of the collapsed solution with psi just under 2 alpha: few samples, small lam."""
        tau2 = self.collapsed_tau2
        tau = tau2**0.5

        def excess(t: float) -> float:
            return self.at(tau2, t * tau, closing).moments.psi - 1.9 * self.alpha

        t = float(brentq(excess, 0.0, top, xtol=1e-6)) if excess(0.0) > 0 else 0.0
        return self.at(tau2, t * tau, closing)

    def on_ray(self, t: float, closing: str) -> State | None:
        """Solve the width equation at fixed t = theta/tau; None if the noise never settles."""

        def excess(log_tau: float) -> float:
            tau = float(np.exp(log_tau))
            return -float(self.residuals(self.at(tau * tau, t * tau, closing))[1])

        high = 0.5 * float(np.log(self.collapsed_tau2))
        low = high
        for _ in range(60):
            if excess(high) < 0:
                break
            high += 1
        else:
            return None
        for _ in range(60):
            if excess(low) > 0:
                break
            high, low = low, low - 1
        else:
            return None
        tau = float(np.exp(brentq(excess, low, high, xtol=1e-13)))
        return self.at(tau * tau, t * tau, closing)

    def bracketed(self, closing: str, top: float) -> State:
        """Solve by bisection of the closing residual in t on [0, top], where top collapses S."""

        def closing_residual(t: float) -> float:
            state = self.on_ray(t, closing)
            return -1.0 if state is None else float(self.residuals(state)[0])

        t = float(brentq(closing_residual, 0.0, top, xtol=1e-13, maxiter=300))
        state = self.on_ray(t, closing)
        # Step off a point where the noise never settles: the root is the other side's limit.
        for nudge in 10.0 ** np.arange(-12, -2):
            if state is not None:
                break
            state = self.on_ray(t + nudge, closing)
        if state is None:
            raise NotConverged(self.problem, float("nan"), _ADVICE)
        return state

    def solve(self, closing: str, guess: State | None, top: float) -> State:
        """Newton from the guess, from fixed-point iterations, from brackets: the first that works."""
        starts: list[Callable[[], State]] = [
            lambda: self.start(closing),
            lambda: self.near_collapse(closing, top),
            lambda: self.bracketed(closing, top),
        ]
        if guess is not None:
            near = guess
            starts.insert(0, lambda: self.at(near.tau2, near.theta, closing, near.moments.point))
        best = float("inf")
        for begin in starts:
            try:
                return self.polish(begin())
            except NotConverged as failure:
                best = min(best, failure.residual)
            except (ArithmeticError, ValueError, RuntimeError, np.linalg.LinAlgError):
                continue  # a bracket without a root, or an overflow on the way
        raise NotConverged(self.problem, best, _ADVICE)

    def polish(self, start: State) -> State:
        """Newton to convergence.

        Raises
        ------
        NotConverged
            The residual stayed above 1e-9 or the point is not a minimum (A < 0).
        """
        state = self.newton(start)
        if state.residual < _TOLERANCE and self.is_physical(state):
            return state
        raise NotConverged(self.problem, state.residual, _ADVICE)

    def is_physical(self, state: State) -> bool:
        """A minimum of the training objective needs A >= 0."""
        return 4 * self.alpha - 2 * state.moments.psi > -1e-9 and state.moments.mass >= 0
