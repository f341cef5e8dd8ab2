"""Solver for channels that are averaged by quadrature: the two maps of the state evolution, iterated.

Unknowns mu = Q0 - m, log b2 and log V. Damped iterations until Newton holds, with a Jacobian by
differences that Broyden's update carries along, from one set of nodes to the next.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive import symbols as s
from derive.model import Problem
from numerics.channel import Averages, Geometry, channel_averages
from numerics.convolution import CutValues, FreeConvolution
from numerics.laws import float_law
from numerics.nodes import Nodes
from numerics.prox import SoftmaxRows
from numerics.solution import NotConverged
from numerics.two_sided_equations import OUTPUT, SPECTRAL, channel_functions, spectral_function

__all__ = ["Point", "TwoSidedSolver"]

Array = NDArray[np.float64]

_ITERATIONS = 300
_NEWTON = 15
_DIFFERENCE = 1e-4  # jumps of the minimiser make smaller differences noisy
_EXACT = 1e-11
_ACCEPTED = 1e-6
_SETTLED = (0.05, 0.005, 0.0005)
_ADVICE = "try a larger lam, a start from a neighbouring alpha or lam (`onehead curve`), or less beta"

_MOMENTS = ("mass", "I1", "I2", "hilbert", "psi", "cube")


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
    preimage: complex = 0j

    @property
    def residual(self) -> float:
        """Largest entry of the step."""
        return float(np.max(np.abs(self.step)))


class TwoSidedSolver:
    """All that is fixed while the overlaps vary: channel, law, generated maps, nodes."""

    def __init__(self, problem: Problem) -> None:
        channel = problem.channel
        self.problem = problem
        self.rows = SoftmaxRows(int(channel.tokens), float(channel.beta))
        self.law = float_law(problem.target)
        self.alpha, self.lam, self.noise = map(float, (problem.alpha, problem.lam, problem.noise))
        self.beta0, self.cap = float(channel.beta0), float(problem.rank_cap)
        self.Q0, self.mean = self.law.Q0, float(self.law.mean)
        self._geometry, self._risk, self._output = channel_functions(channel)
        self._spectral = spectral_function(problem.penalty)

    # --- the two maps -------------------------------------------------------------------------

    def at(self, x: Array, nodes: Nodes) -> Point:
        """Output side, then spectral side."""
        mu, b2, V = float(x[0]), float(np.exp(x[1])), float(np.exp(x[2]))
        (R,) = self._risk(b2, mu, self.Q0, self.noise)
        names = ("Q", "m", "q", "b2", "shortfall")
        geometry = dict(zip(names, self._geometry(R, mu, self.Q0, self.noise), strict=True)) | {"V": V}
        Q, m, b = geometry["Q"], geometry["m"], b2**0.5
        averages = channel_averages(self.rows, nodes, Geometry(Q, m, b, V), self.beta0, self.noise)
        found = self._output(
            self.alpha, Q, m, b, geometry["shortfall"], averages.along, averages.across, averages.square
        )
        conjugates = {k: float(v) for k, v in zip(OUTPUT, found, strict=True)}
        if not (conjugates["A"] > 0 and conjugates["M"] > 0):
            raise FloatingPointError("A or M is not positive here")
        spectral, preimage = self.spectral(conjugates)
        step = self._coordinates(spectral) - x
        step[0] /= b
        return Point(x, geometry, averages, conjugates, spectral, step, preimage)

    def spectral(self, conjugates: dict[str, float]) -> tuple[dict[str, float], complex]:
        """(A, M, C) -> overlaps, through the law of S0 + tau G."""
        A, M, C, gap = (conjugates[k] for k in OUTPUT)
        if self.problem.penalty == "frobenius":
            gap = (A + self.lam - M) / (A + self.lam)
            moments, tau2, theta = CutValues(1, 0, 0, 0, 0, 0, 0, 0, 0j), 0.0, 0.0
        else:
            tau2, theta = C / M**2, self.lam / M
            moments = self._cut(tau2, theta)
        values = self._spectral(
            *(A, gap, C, self.lam, self.Q0, self.mean, tau2, theta, moments.defect),
            *(getattr(moments, name) for name in _MOMENTS),
        )
        return {k: float(v) for k, v in zip(SPECTRAL, values, strict=True)}, moments.point

    def _cut(self, tau2: float, theta: float) -> CutValues:
        nu = FreeConvolution(self.law, tau2)
        w = nu.preimage(theta)
        if self.cap < 1 and nu.mass_above(w) > self.cap:
            return nu.cut_at(nu.quantile(self.cap), theta)
        return replace(nu.cut_at(w, theta), edge=0.0)

    def _coordinates(self, spectral: dict[str, float]) -> Array:
        b2 = self._geometry(spectral["R"], spectral["mu"], self.Q0, self.noise)[3]
        # A collapsed student has b2 = V = 0; the logarithms stay finite.
        return np.array([spectral["mu"], *(np.log(max(v, 1e-300)) for v in (b2, spectral["V"]))])

    # --- iteration ----------------------------------------------------------------------------

    def settle(self, x: Array, nodes: Nodes, target: float = 0.02) -> Point:
        """Damped iteration of the two maps; the damping grows when the residual does.

        Raises
        ------
        NotConverged
            The residual never fell below ``target``.
        """
        point, damping = self._first(x, nodes), 0.7
        for _ in range(_ITERATIONS):
            if point.residual < target or self.collapses(point):
                return point
            try:
                new = self.at(x + damping * self.raw(point, np.clip(point.step, -3, 3)), nodes)
            except (ArithmeticError, ValueError):
                damping /= 2
            else:
                if new.residual > point.residual and damping > 0.1:
                    damping /= 1.5
                x, point = new.x, new
            if damping < 1e-4:
                break
        raise NotConverged(self.problem, point.residual, _ADVICE)

    def _first(self, x: Array, nodes: Nodes) -> Point:
        """The point at x, or at a smaller V if A or M is not positive there."""
        for _ in range(12):
            try:
                return self.at(x, nodes)
            except (ArithmeticError, ValueError):
                x = x - np.array([0, 0, 1])
        raise NotConverged(self.problem, float("nan"), _ADVICE)

    @staticmethod
    def collapses(point: Point) -> bool:
        """Whether the spectral side returned S = 0."""
        return point.spectral["trace"] == 0

    @staticmethod
    def raw(point: Point, step: Array) -> Array:
        """A step in units of `Point.step` as one in x."""
        return step * np.array([point.geometry["b2"] ** 0.5, 1, 1])

    def jacobian(self, point: Point, nodes: Nodes) -> Array:
        """Derivatives of the step in x (mu in units of b), by forward differences."""
        columns = [
            (self.at(point.x + self.raw(point, shift), nodes).step - point.step) / _DIFFERENCE
            for shift in _DIFFERENCE * np.eye(3)
        ]
        return np.array(columns).T

    def newton(self, point: Point, nodes: Nodes, J: Array) -> tuple[Point, Array]:
        """Newton-Broyden on fixed nodes; returns the best point and the Jacobian there."""
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

    def _search(self, point: Point, direction: Array, nodes: Nodes) -> Point | None:
        for halving in range(4):
            try:
                new = self.at(point.x + self.raw(point, direction * 0.5**halving), nodes)
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
            if self.collapses(point):
                return point, np.eye(3)
            J = self.jacobian(point, nodes)
            found, J = self.newton(point, nodes, J)
            if found.residual < _ACCEPTED:
                return found, J
            x = found.x if found.residual < point.residual else point.x
        raise NotConverged(self.problem, found.residual, _ADVICE)

    # --- what is reported ---------------------------------------------------------------------

    def start(self, informed: bool) -> Array:
        """A start near the target or near S = 0."""
        mu, b2 = (0.0, 0.05 * self.Q0) if informed else (0.8 * self.Q0, 0.3 * self.Q0)
        return np.array([mu, np.log(b2), 0.0])

    def outputs(self, point: Point) -> dict[str, float]:
        """The quantities of `numerics.solution.KEYS`, at the spectral side's overlaps."""
        side, conjugates, averages = point.spectral, point.conjugates, point.averages
        A, M, C = (conjugates[k] for k in ("A", "M", "C"))
        offset = float(self.problem.channel.offset.subs(s.Delta, self.problem.noise))
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
