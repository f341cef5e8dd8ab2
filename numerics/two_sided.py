"""Solver for channels that are averaged by quadrature: the two maps of the state evolution, iterated.

Unknowns mu = Q0 - m, log b2 and log V. Damped iterations until Newton holds, with a Jacobian by
differences that Broyden's update carries along, from one set of nodes to the next.
"""

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive import symbols as s
from derive.model import Problem
from derive.softmax import SoftmaxChannel
from numerics.channel import Averages, channel_averages, labels, prox_failures
from numerics.convolution import FreeConvolution
from numerics.label_lattice import LabelLattice
from numerics.laws import float_law
from numerics.nodes import Geometry, Nodes, sobol
from numerics.prox import SoftmaxRows
from numerics.solution import NotConverged
from numerics.two_sided_equations import OUTPUT, SPECTRAL, channel_functions, spectral_values

__all__ = ["Point", "TwoSidedSolver"]

Array = NDArray[np.floating[Any]]

_ITERATIONS = 300
_NEWTON, _ROUNDS = 15, 3
_DIFFERENCE = 1e-4  # jumps of the minimiser make smaller differences noisy
_EXACT = 1e-11
_ACCEPTED = 1e-6
_SETTLED = (0.05, 0.005, 0.0005)
_SUBSET, _STARTS = 8, 8  # 2^8 random samples, random starts for each
_ADVICE = "try a larger lam, a start from a neighbouring alpha or lam (`onehead curve`), or less beta"


@dataclass(frozen=True)
class Point:
    """Coordinates (mu, log b2, log V) with everything computed there.

    ``step`` is where the two maps lead, minus the coordinates, mu in units of b.
    """

    x: Array
    geometry: dict[str, float]
    averages: Averages
    conjugates: dict[str, float]
    spectral: dict[str, float]
    step: Array

    @property
    def residual(self) -> float:
        """Largest entry of the step."""
        return float(np.max(np.abs(self.step)))

    @property
    def collapsed(self) -> bool:
        """Whether S = 0."""
        return self.spectral["trace"] == 0


class TwoSidedSolver:
    """All that is fixed while the overlaps vary: channel, law, generated maps, nodes."""

    def __init__(self, problem: Problem) -> None:
        channel = problem.channel
        if not isinstance(channel, SoftmaxChannel):
            raise TypeError(f"the {channel.task} channel has a closed form and its own solver")
        self.problem, self.channel = problem, channel
        self.rows = SoftmaxRows(int(channel.tokens), float(channel.beta))
        self.law = float_law(problem.target)
        self.alpha, self.lam, self.noise = map(float, (problem.alpha, problem.lam, problem.noise))
        self.beta0, self.cap = float(channel.beta0), float(problem.rank_cap)
        self.Q0 = self.law.Q0
        self._geometry, self._risk, self._output = channel_functions(channel)

    @property
    def label_noises(self) -> int:
        """Noises on the entries of a label; noise inside is part of the target field instead."""
        outside = self.problem.noise_at == "outside" and self.noise > 0
        return self.rows.tokens**2 if outside else 0

    def at_penalty(self, lam: float) -> "TwoSidedSolver":
        """The same solver at another lam."""
        other = copy(self)
        other.lam = lam
        return other

    # --- the two maps -------------------------------------------------------------------------

    def at(self, x: Array, nodes: Nodes | LabelLattice, near: Point | None = None) -> Point:
        """Output side, then spectral side; ``near`` is a neighbouring point on the same nodes."""
        mu, b2, V = float(x[0]), float(np.exp(x[1])), float(np.exp(x[2]))
        (R,) = self._risk(b2, mu, self.Q0, self.noise)
        geometry = self.geometry(R, mu) | {"V": V}
        averages, conjugates = self._averaged(geometry, b2**0.5, nodes, near)
        b = b2**0.5
        if not (conjugates["A"] > 0 and conjugates["M"] > 0):
            raise FloatingPointError("A or M is not positive here")
        spectral = self.spectral(conjugates)
        if not spectral["trace"] > 0:
            raise FloatingPointError("S = 0 here")
        step = self._coordinates(spectral) - x
        step[0] /= b
        return Point(x, geometry, averages, conjugates, spectral, step)

    def geometry(self, R: float, mu: float) -> dict[str, float]:
        """Q, m, q, b2 and Q - m of `derive.two_sides.geometry`."""
        names = ("Q", "m", "q", "b2", "shortfall")
        return dict(zip(names, self._geometry(R, mu, self.Q0, self.noise), strict=True))

    def output_side(
        self, R: float, m: float, V: float, nodes: Nodes | LabelLattice
    ) -> tuple[Averages, dict[str, float]]:
        """Channel averages and A, M, C, gap at overlaps with R = Q0 - 2 m + q."""
        geometry = self.geometry(R, self.Q0 - m) | {"V": V}
        return self._averaged(geometry, geometry["b2"] ** 0.5, nodes, None)

    def _averaged(
        self, at: dict[str, float], b: float, nodes: Nodes | LabelLattice, near: Point | None
    ) -> tuple[Averages, dict[str, float]]:
        Q, m = at["Q"], at["m"]
        averages = channel_averages(
            *(self.rows, nodes, Geometry(Q, m, b, at["V"]), self.beta0, self.noise),
            near.averages.minima if near is not None else None,
        )
        sums = averages.along, averages.across, averages.square
        found = self._output(self.alpha, Q, m, b, at["shortfall"], *sums)
        return averages, {k: float(v) for k, v in zip(OUTPUT, found, strict=True)}

    def spectral(self, conjugates: dict[str, float]) -> dict[str, float]:
        """(A, M, C) -> overlaps, through the law of S0 + tau G."""
        return spectral_values(self.problem.penalty, self.law, self.lam, conjugates, self.cap)

    def _coordinates(self, spectral: dict[str, float]) -> Array:
        b2 = self._geometry(spectral["R"], spectral["mu"], self.Q0, self.noise)[3]
        return np.array([spectral["mu"], np.log(b2), np.log(spectral["V"])])

    # --- iteration ----------------------------------------------------------------------------

    def settle(self, x: Array, nodes: Nodes, target: float) -> Point:
        """Damped iteration of the two maps; the damping grows when the residual does.

        Raises
        ------
        NotConverged
            The residual never fell below ``target``.
        """
        point, damping = self._first(x, nodes), 0.7
        for _ in range(_ITERATIONS):
            if point.residual < target:
                return point
            try:
                step = damping * np.clip(point.step, -3, 3)
                new = self.at(point.x + self.raw(point, step), nodes, point)
            except (ArithmeticError, ValueError):
                damping /= 2
            else:
                if new.residual > point.residual and damping > 0.1:
                    damping /= 1.5
                point = new
            if damping < 1e-4:
                break
        raise NotConverged(self.problem, point.residual, _ADVICE)

    def _first(self, x: Array, nodes: Nodes) -> Point:
        """The point at x, or at a smaller V if the maps lead nowhere from there."""
        for _ in range(12):
            try:
                return self.at(x, nodes)
            except (ArithmeticError, ValueError):
                x = x - np.array([0, 0, 1])
        raise NotConverged(self.problem, float("nan"), _ADVICE)

    @staticmethod
    def raw(point: Point, step: Array) -> Array:
        """A step in units of `Point.step` as one in x."""
        return step * np.array([point.geometry["b2"] ** 0.5, 1, 1])

    def jacobian(self, point: Point, nodes: Nodes | LabelLattice) -> Array:
        """Derivatives of the step in x (mu in units of b), by forward differences."""
        columns = [
            (self.at(point.x + self.raw(point, shift), nodes, point).step - point.step) / _DIFFERENCE
            for shift in _DIFFERENCE * np.eye(3)
        ]
        return np.array(columns).T

    def newton(self, point: Point, nodes: Nodes | LabelLattice, J: Array) -> tuple[Point, Array]:
        """Newton-Broyden on fixed nodes; returns the last point and the Jacobian there.

        Steps follow the minima of the point before; the last point has looked for all of them.
        """
        for _ in range(_ROUNDS):
            point, J = self._newton_steps(point, nodes, J)
            point = self.at(point.x, nodes)
            if point.residual < _ACCEPTED:
                break
        return point, J

    def _newton_steps(self, point: Point, nodes: Nodes | LabelLattice, J: Array) -> tuple[Point, Array]:
        for _ in range(_NEWTON):
            if point.residual < _EXACT:
                break
            direction = -np.linalg.solve(J, point.step)
            direction *= min(1.0, 1.0 / np.max(np.abs(direction)))
            new = self._search(point, direction, nodes)
            if new is None:
                break
            taken = (new.x - point.x) / self.raw(point, np.ones(3))
            change = new.step - point.step - J @ taken
            J = J + np.outer(change, taken) / (taken @ taken)
            point = new
        return point, J

    def _search(self, point: Point, direction: Array, nodes: Nodes | LabelLattice) -> Point | None:
        for halving in range(4):
            step = self.raw(point, direction * 0.5**halving)
            try:
                new = self.at(point.x + step, nodes, point)
            except (ArithmeticError, ValueError):
                continue
            if new.residual < point.residual:
                return new
        return None

    def solve(self, x: Array, nodes: Nodes) -> tuple[Point, Array]:
        """Settle, then Newton, on one set of nodes; closer settling where Newton does not hold.

        Raises
        ------
        NotConverged
            No point met the maps to 1e-6.
        """
        for target in _SETTLED:
            point = self.settle(x, nodes, target)
            found, J = self.newton(point, nodes, self.jacobian(point, nodes))
            if found.residual < _ACCEPTED:
                return found, J
            x = found.x if found.residual < point.residual else point.x
        raise NotConverged(self.problem, found.residual, _ADVICE)

    # --- S = 0 --------------------------------------------------------------------------------

    def collapsed(self, nodes: Nodes) -> Point | None:
        """S = 0 where that solves the equations: theta at or above the top edge of the spectrum.

        With q = m = V = 0 the minimiser is omega = 0, where everything is smooth: A is the mean
        curvature there, since Stein's lemma has nothing to divide by.
        """
        if self.problem.penalty == "frobenius" or self.lam < self.collapse_penalty(nodes):
            return None
        averages, A, M, C = self._at_zero(nodes)
        conjugates = {"A": A, "M": M, "C": C, "gap": 0.0}
        spectral = dict.fromkeys(SPECTRAL, 0.0) | {"R": self.Q0, "mu": self.Q0}
        x = np.array([self.Q0, -np.inf, -np.inf])
        return Point(x, {"b2": 0.0}, averages, conjugates, spectral, np.zeros(3))

    def collapse_penalty(self, nodes: Nodes) -> float:
        """lam = M edge, with the upper edge of the law of S0 + tau G, at S = 0."""
        _, _, M, C = self._at_zero(nodes)
        return M * FreeConvolution(self.law, C / M**2).top_edge()

    def _at_zero(self, nodes: Nodes) -> tuple[Averages, float, float, float]:
        """Averages and A, M, C at omega = u* = 0."""
        Q = self._geometry(self.Q0, self.Q0, self.Q0, self.noise)[0]
        y = labels(self.rows, nodes, Q, self.beta0, self.noise)
        P = self.rows.probabilities(np.zeros_like(nodes.z0))
        gradient, curvature, _ = self.rows.slopes(P, y)
        w, f = nodes.weights, -gradient
        along, square = float(w @ (f * nodes.z0).sum(0)), float(w @ (f * f).sum(0))
        train = float(w @ self.rows.loss(P, y))
        A = self.alpha * float(w @ self.rows.trace(curvature))
        averages = Averages(along, 0.0, square, train, train, train, 0.0, None)
        return averages, A, self.alpha * along / Q**0.5, self.alpha * square / 2

    # --- the test loss ------------------------------------------------------------------------

    @property
    def field_variance(self) -> float:
        """Variance of the target's field, noise inside the softmax included."""
        return float(self._geometry(self.Q0, self.Q0, self.Q0, self.noise)[0])

    def loss_derivatives(self, nodes: Nodes, at: Geometry) -> tuple[float, float]:
        """E[tr l''] and E[l' . u0] of the test loss l at omega; nodes without label noise."""
        y = labels(self.rows, nodes, at.Q, self.beta0, 0.0)
        omega = at.m / at.Q**0.5 * nodes.z0 + at.b * nodes.z
        gradient, curvature, _ = self.rows.slopes(self.rows.probabilities(omega), y)
        w = nodes.weights
        field = at.Q**0.5 * float(w @ (gradient * nodes.z0).sum(0))
        return float(w @ self.rows.trace(curvature)), field

    def prox_failures(self, point: Point) -> float:
        """Share of random samples at a point for which other random starts find a lower minimum."""
        if point.collapsed:
            return 0.0
        nodes = sobol(_SUBSET, self.rows.size, self.label_noises, seed=1)
        g = point.geometry
        at = Geometry(g["Q"], g["m"], g["b2"] ** 0.5, g["V"])
        return prox_failures(self.rows, nodes, at, self.beta0, self.noise, _STARTS)

    # --- what is reported ---------------------------------------------------------------------

    def start(self, informed: bool) -> Array:
        """A start near the matrix that the labels show, (beta0/beta) S0, or nearer to S = 0."""
        beta, fit = self.rows.beta, self.beta0 / self.rows.beta
        m, b2 = (fit * self.Q0, 0.05 * self.Q0) if informed else (0.2 * fit * self.Q0, 0.3 * self.Q0)
        return np.array([self.Q0 - m, np.log(b2 * fit**2), -2 * np.log(beta)])

    def outputs(self, point: Point) -> dict[str, float]:
        """The quantities of `numerics.solution.KEYS`, at the spectral side's overlaps."""
        side, conjugates, averages = point.spectral, point.conjugates, point.averages
        A, M, C = (conjugates[k] for k in ("A", "M", "C"))
        offset = float(self.channel.offset.subs(s.Delta, self.problem.noise))
        legendre = -A * side["q"] / 2 + M * side["m"] + C * side["V"]
        nuclear = self.problem.penalty == "nuclear"
        return {
            **{k: side[k] for k in ("q", "m", "V")},
            **{"A": A, "M": M, "C": C},
            "tau": C**0.5 / M,
            "theta": self.lam / M if nuclear else 0.0,
            "psi": side["psi"],
            "excess_risk": side["R"],
            "train_loss": averages.train + offset,
            "test_loss": averages.test + offset,
            "energy": self.alpha * (averages.moreau + offset) + side["P"] + legendre,
            "trace": side["trace"],
            "rank_fraction": side["rank_fraction"],
        }
