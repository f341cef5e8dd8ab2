"""Solve a softmax task: starts, refinement of the nodes, error estimate (float64)."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import takewhile
from typing import Any, Protocol

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from derive.exact import ProblemError
from derive.model import Problem
from numerics.edges import touching
from numerics.label_lattice import LabelLattice, label_lattice
from numerics.laws import mp_law
from numerics.nodes import Geometry, Nodes, lattice, pooled, sobol
from numerics.precision import context
from numerics.solution import NotConverged, Solution, magnitude
from numerics.thresholds import Threshold, splitting
from numerics.two_sided import Point, TwoSidedSolver

__all__ = [
    "averaging_rule",
    "check_softmax",
    "softmax_collapse",
    "softmax_splitting",
    "solve_softmax",
    "solve_softmax_optimal",
]

Array = NDArray[np.floating[Any]]

# Lattice spacings with the radius of their ball; Sobol sizes 2^k.
_LATTICES = ((1.0, 5.0), (0.7, 5.8), (0.5, 6.2), (0.36, 6.5), (0.26, 6.6), (0.2, 6.7), (0.16, 6.7))
_LABEL_STEPS = (0.7, 0.5, 0.36, 0.26)
_POINTS_REACH = 1e-3  # what the largest Sobol rule is good for
_SOBOL = (10, 12, 14, 16)
_STALL = 2  # finer lattices without a smaller change
_REPLICAS = 8
_WORTHLESS = 3e-2


def solve_softmax(
    problem: Problem, start: Solution | None = None, tolerance: float | None = None
) -> Solution:
    """Solve the state evolution of a softmax task in float64.

    Parameters
    ----------
    start : Solution, optional
        A neighbouring solution to continue from; without one the solve starts near the target and near
        S = 0, and the lower energy wins.
    tolerance : float, optional
        Error estimate at which refinement stops: 1e-6 at T = 2, else 1e-3.

    Returns
    -------
    Solution
        With ``extras``: ``jump_fraction``, the Gaussian mass closer than a tenth of a standard
        deviation to a jump of the minimiser; ``prox_failures``, the share of a random subset where
        more starts find a lower minimum; ``fixed_points``, how many the starts led to.

    Raises
    ------
    NotConverged
        No fixed point was found, or its error estimate stayed above 3e-2.
    ProblemError
        lam = 0, which only closed channels take as a limit, or a parameter left as a symbol.
    """
    check_softmax(problem)
    if problem.lam == 0:
        raise ProblemError(
            "the softmax tasks need lam > 0: approach the limit lam -> 0+ with a small one such as 1e-5"
        )
    solver = TwoSidedSolver(problem)
    rule = averaging_rule(solver)
    points = _fixed_points(solver, rule.coarse, start)
    point, J = min(points, key=lambda found: solver.outputs(found[0])["energy"])
    point, values, error = rule.refine(point, J, tolerance)
    if not error < _WORTHLESS:
        raise NotConverged(
            problem, point.residual, f"the relative error is {error:.0e}; try a larger lam or less beta"
        )
    extras = {
        "jump_fraction": point.averages.jump_fraction,
        "prox_failures": solver.prox_failures(point),
        "fixed_points": len(points),
    }
    phase = "collapsed" if point.collapsed else "regular"
    error, seed = error + point.residual, tuple(map(float, point.x))
    return Solution(problem, values, point.residual, error, 15, phase, seed, extras)


def check_softmax(problem: Problem) -> None:
    """Refuse what the quadrature cannot do, before the work."""
    if problem.tokens.free_symbols:
        raise ProblemError("the number of tokens needs a number to be solved for: state --tokens")
    for name in ("beta", "beta0"):
        if getattr(problem, name).free_symbols:
            raise ProblemError(f"{name} needs a number to be solved for")


def solve_softmax_optimal(problem: Problem, tolerance: float | None = None) -> Solution:
    """Solve at the penalty of least test loss; the ``lam`` of ``problem`` is ignored.

    A scan on coarse nodes from large lam down, until the loss has risen for good, brackets the
    minimum; a bounded search sharpens it (the loss is flat there, so lam is good to about four digits).
    Without noise the answer is the limit lam -> 0+, for which lam = 1e-5 stands.

    Raises
    ------
    NotConverged
        No lam of the scan led to a fixed point.
    """
    check_softmax(problem)
    if problem.noise == 0:
        # Noiseless labels are fitted exactly: the best penalty is the limit lam -> 0+.
        return solve_softmax(problem.at(lam=_LEAST_LAM), tolerance=tolerance)
    starts: dict[float, Solution] = {}

    def loss(log_lam: float) -> float:
        lam = sp.Rational(f"{np.exp(log_lam):.6e}")
        near = min(starts, key=lambda other: abs(other - log_lam), default=None)
        start = None if near is None else starts[near]
        try:
            starts[log_lam] = solve_softmax(problem.at(lam=lam), start, _ROUGH)
        except NotConverged:
            return float("inf")
        return float(starts[log_lam].values["test_loss"])

    scan = np.linspace(*_LOG_LAMS, _SCAN)[::-1]
    losses: list[float] = []
    for at in scan:
        losses.append(loss(at))
        if len(losses) > _RISEN and min(losses[-_RISEN:]) > 1.02 * min(losses):
            break
    best = int(np.argmin(losses))
    if not np.isfinite(losses[best]):
        raise NotConverged(problem, float("nan"), "no penalty between 1e-5 and 10 gave a fixed point")
    low, high = scan[min(best + 1, _SCAN - 1)], scan[max(best - 1, 0)]
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-4})
    last = starts[found.x if found.fun < losses[best] else scan[best]]
    return solve_softmax(last.problem, last, tolerance)


def softmax_collapse(problem: Problem) -> Threshold:
    """Penalty lam at and above which S = 0 solves the equations of a softmax task.

    There u* = 0 and the averages are over the target's field alone.
    """
    check_softmax(problem)
    solver = TwoSidedSolver(problem.at(penalty="nuclear", lam=1))
    rule = averaging_rule(solver)
    values = [solver.collapse_penalty(nodes) for nodes in rule.checks()]
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    ctx = context(20)
    return Threshold(ctx.mpf(float(np.mean(values))), {}, spread / float(np.mean(values)))


def softmax_splitting(problem: Problem, gap: tuple[float, float]) -> Threshold:
    """Largest alpha at which the noise of a softmax task is as wide as closes a gap of the target.

    Counterpart of `numerics.thresholds.splitting`; the ``alpha`` of ``problem`` is ignored.

    Raises
    ------
    NotConverged
        A solve on the way failed.
    ArithmeticError
        No alpha within a factor of 1000 of the linear task's has that width.
    """
    check_softmax(problem)
    ctx = context(20)
    tau2, x = (float(v) for v in touching(problem.target, gap, mp_law(problem.target, ctx)))
    solved: dict[float, Solution] = {}
    described = problem.describe("alpha")

    def excess(log_alpha: float) -> float:
        near = min(solved, key=lambda other: abs(other - log_alpha), default=None)
        start = None if near is None else solved[near]
        alpha = sp.Rational(f"{np.exp(log_alpha):.15e}")
        solved[log_alpha] = solve_softmax(problem.at(alpha=alpha), start, _FINE)
        return float(np.log(solved[log_alpha].values["tau"] ** 2 / tau2))

    # Close to the linear task with as many effective samples.
    linear = splitting(problem.target, gap, problem.noise, problem.lam)
    guess = np.log(float(linear.value) / int(problem.channel.directions) if linear else 1.0)
    low, high = guess - _STRIDE, guess
    while excess(high) > 0:
        low, high = high, high + _STRIDE
        if high > guess + _FARTHEST:
            raise ArithmeticError(f"the spectrum is not split at any alpha tried for {described}")
    while excess(low) < 0:
        low, high = low - _STRIDE, low
        if low < guess - _FARTHEST:
            raise ArithmeticError(f"the spectrum is split at every alpha tried for {described}")
    root = float(brentq(excess, low, high, xtol=1e-12, rtol=1e-12))
    last = solved[min(solved, key=lambda other: abs(other - root))]
    theta, rho = float(last.values["theta"]), float(last.values["M"] / last.values["A"])
    # tau^2 falls about like 1/alpha, so its relative error is that of alpha.
    unknown = {"tau": tau2**0.5, "theta": theta, "eigenvalue": ctx.mpf(rho * (x - theta))}
    return Threshold(ctx.mpf(float(np.exp(root))), unknown, 2 * last.error_estimate)


_FINE = 1e-5
_STRIDE, _FARTHEST = np.log(1.5), np.log(1000.0)
_LEAST_LAM = sp.Rational(1, 10**5)
_LOG_LAMS = (np.log(1e-5), np.log(10.0))
_SCAN, _RISEN = 15, 3
_ROUGH = 3e-2  # the first refinement meets it


def averaging_rule(solver: TwoSidedSolver) -> "Rule":
    """The quadrature of a channel."""
    if solver.rows.tokens > 2:
        return _Sobol(solver)
    return _LabelLattices(solver) if solver.label_noises else _Lattice(solver)


def _fixed_points(
    solver: TwoSidedSolver, nodes: Nodes, start: Solution | None
) -> list[tuple[Point, Array]]:
    """Distinct fixed points on coarse nodes; a given start alone if it leads to one."""
    if start is not None and start.seed is not None and np.all(np.isfinite(start.seed)):
        try:
            return [solver.solve(np.array(start.seed), nodes)]
        except _FAILURES:
            pass  # too far away: start afresh
    nothing = solver.collapsed(nodes)
    found: list[tuple[Point, Array]] = [] if nothing is None else [(nothing, np.eye(3))]
    failure: Exception | None = None
    for informed in (True, False):
        try:
            point, J = solver.solve(solver.start(informed), nodes)
        except _FAILURES as error:
            failure = error
            continue
        if all(_distance(solver, point, other) > _DISTINCT for other, _ in found):
            found.append((point, J))
    found = found or _continued(solver, nodes)
    if not found:
        residual = getattr(failure, "residual", float("nan"))
        raise NotConverged(solver.problem, residual, "try a larger lam, less beta or more noise")
    return found


def _continued(solver: TwoSidedSolver, nodes: Nodes) -> list[tuple[Point, Array]]:
    """Continuation from a larger lam, where a direct solve works, down to the lam asked for."""
    target = np.log10(solver.lam)
    for here in np.arange(1.0, _DECADES + 1):
        point = _attempt(solver, 10.0 ** (target + here), solver.start(informed=True), nodes)
        if point is not None:
            break
    else:
        return []
    slope, step = np.zeros(3), 1.0
    while step > _LEAST_STEP:
        step = min(step, here)
        lam = 10.0 ** (target + here - step)
        new = _attempt(solver, lam, point[0].x - step * slope, nodes)
        if new is None:
            step /= 2
            continue
        slope = (point[0].x - new[0].x) / step
        point, here, step = new, here - step, 1.5 * step
        if here <= 0:
            return [point]
    return []


def _attempt(solver: TwoSidedSolver, lam: float, x: Array, nodes: Nodes) -> tuple[Point, Array] | None:
    try:
        return solver.at_penalty(lam).solve(x, nodes)
    except _FAILURES:
        return None


_DECADES, _LEAST_STEP = 8, 0.02
_FAILURES = (ArithmeticError, ValueError, np.linalg.LinAlgError)  # NotConverged is one
_DISTINCT = 1e-3


def _distance(solver: TwoSidedSolver, one: Point, other: Point) -> float:
    a, b = solver.outputs(one), solver.outputs(other)
    return max(abs(a[k] - b[k]) / magnitude(a, k) for k in ("q", "m", "excess_risk"))


def _relative(values: dict[str, float], other: dict[str, float]) -> float:
    return max(abs(values[k] - other[k]) / magnitude(values, k) for k in values)


def _advance(
    solver: TwoSidedSolver, point: Point, J: Array, nodes: Nodes | LabelLattice
) -> tuple[Point, Array]:
    """The same fixed point on other nodes.

    Raises
    ------
    NotConverged
        It is none there.
    """
    if point.collapsed and isinstance(nodes, Nodes):
        new = solver.collapsed(nodes)
        if new is None:
            raise NotConverged(solver.problem, float("nan"), "lam is at the collapse of S; move off it")
        return new, J
    try:
        point, J = solver.newton(solver.at(point.x, nodes), nodes, J)
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        raise NotConverged(
            solver.problem, point.residual, "it is lost on finer nodes; try a larger lam or less beta"
        ) from None
    if point.residual > _CERTAIN:
        raise NotConverged(solver.problem, point.residual, "try a larger lam or less beta")
    return point, J


_CERTAIN = 1e-3


class Rule(Protocol):
    """Nodes for a first solve, and their refinement."""

    coarse: Nodes

    def checks(self) -> list[Nodes]:
        """Rules whose differences measure the error of a smooth average."""

    def refine(
        self, point: Point, J: Array, tolerance: float | None
    ) -> tuple[Point, dict[str, float], float]:
        """The point on nodes that meet the tolerance, its outputs and their error."""


def _refine_by_change(
    solver: TwoSidedSolver,
    point: Point,
    J: Array,
    tolerance: float,
    finer: Iterable[Nodes | LabelLattice],
) -> tuple[Point, dict[str, float], float]:
    """Finer and finer lattices; the error is the change from the lattice before."""
    values, changes = solver.outputs(point), [float("inf")]
    for nodes in finer:
        point, J = _advance(solver, point, J, nodes)
        found = solver.outputs(point)
        changes.append(_relative(found, values))
        values = found
        # Where the minimiser jumps a lattice can agree with the one before by luck.
        lucky = point.averages.jump_fraction > tolerance
        error = max(changes[-2:]) if lucky else changes[-1]
        # A steep integrand (large beta) gains nothing from the next lattice but its cost.
        stalled = len(changes) > _STALL and min(changes[-_STALL:]) > min(changes[:-_STALL]) / 2
        if error < tolerance or stalled:
            break
    return point, values, error


class _Lattice:
    """Refinement by finer lattices."""

    def __init__(self, solver: TwoSidedSolver) -> None:
        self.solver = solver
        self.coarse = lattice(*_LATTICES[0])

    def checks(self) -> list[Nodes]:
        return [lattice(*spacing) for spacing in _LATTICES[2:4]]

    def refine(
        self, point: Point, J: Array, tolerance: float | None
    ) -> tuple[Point, dict[str, float], float]:
        finer = (lattice(*spacing) for spacing in _LATTICES[1:])
        return _refine_by_change(self.solver, point, J, tolerance or 1e-6, finer)


class _Sobol:
    """Refinement by more points; the error is the standard error over independent randomisations."""

    def __init__(self, solver: TwoSidedSolver) -> None:
        self.solver = solver
        self.coarse = self._replica(_SOBOL[0], 0)

    def _replica(self, exponent: int, seed: int) -> Nodes:
        return sobol(exponent, self.solver.rows.size, self.solver.label_noises, seed)

    def checks(self) -> list[Nodes]:
        """Independent randomisations."""
        return [self._replica(_SOBOL[2], r + 1) for r in range(_REPLICAS)]

    def refine(
        self, point: Point, J: Array, tolerance: float | None
    ) -> tuple[Point, dict[str, float], float]:
        solver = self.solver
        for exponent in _SOBOL:
            replicas = [self._replica(exponent, _REPLICAS * exponent + r) for r in range(_REPLICAS)]
            nodes = pooled(replicas)
            point, J = _advance(solver, point, J, nodes)
            values = solver.outputs(point)
            each = [solver.outputs(self._moved(point, part, J)) for part in replicas]
            error = max(
                float(np.std([v[k] for v in each], ddof=1)) / _REPLICAS**0.5 / magnitude(values, k)
                for k in values
            )
            if error < (tolerance or 1e-3):
                break
        return point, values, error

    def _moved(self, point: Point, replica: Nodes, J: Array) -> Point:
        """Where one randomisation alone puts the fixed point, to first order."""
        if point.collapsed:
            return _advance(self.solver, point, J, replica)[0]
        try:
            here = self.solver.at(point.x, replica)
            shift = -np.linalg.solve(J, here.step - point.step)
            return self.solver.at(point.x + self.solver.raw(point, shift), replica)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            raise NotConverged(
                self.solver.problem, point.residual, "the randomisations disagree; try a larger lam"
            ) from None


class _LabelLattices(_Sobol):
    """Points to come near, then lattices over (label, omega) as long as they fit into memory."""

    def refine(
        self, point: Point, J: Array, tolerance: float | None
    ) -> tuple[Point, dict[str, float], float]:
        wanted, solver = tolerance or 1e-6, self.solver
        rough = super().refine(point, J, max(wanted, _ROUGH))
        if rough[2] < wanted:
            return rough
        g = rough[0].geometry
        found = (*rough[:2], float("inf"))
        if not rough[0].collapsed:
            at = Geometry(g["Q"], g["m"], g["b2"] ** 0.5, g["V"])
            made = (label_lattice(solver.rows, at, solver.beta0, solver.noise, h) for h in _LABEL_STEPS)
            finer = (nodes for nodes in takewhile(lambda nodes: nodes is not None, made) if nodes)
            with suppress(NotConverged):
                found = _refine_by_change(solver, rough[0], J, wanted, finer)
        if found[2] < _POINTS_REACH:
            return found
        return min(found, super().refine(point, J, tolerance), key=lambda each: each[2])
