"""Averages of the softmax channel over (u0, omega) and label noise, by quadrature."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numerics.label_lattice import LabelLattice
from numerics.nodes import Geometry, Nodes
from numerics.prox import Minima, SoftmaxRows

__all__ = ["Averages", "Fields", "channel_averages", "fields", "labels", "prox_failures"]

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Averages:
    """What the saddle point and the report need; f = (u* - omega)/V, products summed over components.

    ``train`` and ``test`` are the losses at u* and omega, ``moreau`` the averaged Moreau envelope;
    ``jump_fraction`` is the mass closer than a tenth of a standard deviation to a jump of u*, and
    ``minima`` continues the minima at a neighbouring point.
    """

    along: float
    across: float
    square: float
    moreau: float
    train: float
    test: float
    jump_fraction: float
    minima: Minima | None


_NEAR = 0.1


def labels(rows: SoftmaxRows, nodes: Nodes, Q: float, beta0: float, noise: float) -> Array:
    """Labels at the nodes, shape (T, T, N); noise outside in its part that a student could fit."""
    y = rows.probabilities(Q**0.5 * nodes.z0, beta0)
    if nodes.xi.shape[0]:
        t = rows.tokens
        xi = nodes.xi.reshape(t, t, -1)
        y = y + noise**0.5 * (xi - xi.mean(0))
    return y


@dataclass(frozen=True)
class Fields:
    """At N points: label, student's mean field omega, a start where the label is fitted, weight.

    ``z0`` and ``z`` are u0/sqrt(Q) and (omega - (m/Q) u0)/b, or their means given y and omega.
    """

    y: Array
    omega: Array
    fitted: Array
    weights: Array
    z0: Array
    z: Array


def fields(
    rows: SoftmaxRows, nodes: Nodes | LabelLattice, at: Geometry, beta0: float, noise: float
) -> Fields:
    """What the nodes stand for at these second moments."""
    if isinstance(nodes, LabelLattice):
        y, omega = nodes.labels(), nodes.fields()
        weights, z0 = nodes.weights(rows, at, beta0, noise)
        return Fields(y, omega, rows.preimage(y), weights, z0, (omega - at.m / at.Q**0.5 * z0) / at.b)
    y = labels(rows, nodes, at.Q, beta0, noise)
    omega = at.m / at.Q**0.5 * nodes.z0 + at.b * nodes.z
    fitted = rows.preimage(y) if nodes.xi.shape[0] else beta0 / rows.beta * at.Q**0.5 * nodes.z0
    return Fields(y, omega, fitted, nodes.weights, nodes.z0, nodes.z)


def channel_averages(
    rows: SoftmaxRows,
    nodes: Nodes | LabelLattice,
    at: Geometry,
    beta0: float,
    noise: float,
    near: Minima | None,
) -> Averages:
    """Average over the nodes.

    Parameters
    ----------
    noise : float
        Delta of noise outside the softmax; not used where the nodes carry no label noise.
    near : Minima or None
        Minima at a neighbouring point on the same nodes to continue.
    """
    here = fields(rows, nodes, at, beta0, noise)
    y, omega, w = here.y, here.omega, here.weights
    found = rows.minimise(omega, y, at.V, here.fitted, near)
    f = found.shift / at.V
    square = float(w @ (f * f).sum(0))
    train = float(w @ rows.loss(rows.probabilities(omega + found.shift), y))
    test = float(w @ rows.loss(rows.probabilities(omega), y))
    near_jump = _jump_distance(rows, here, at, found, beta0) < _NEAR
    return Averages(
        along=float(w @ (f * here.z0).sum(0)),
        across=float(w @ (f * here.z).sum(0)),
        square=square,
        moreau=train + at.V * square / 2,
        train=train,
        test=test,
        jump_fraction=float(w[found.twofold] @ near_jump),
        minima=found,
    )


def prox_failures(
    rows: SoftmaxRows, nodes: Nodes, at: Geometry, beta0: float, noise: float, starts: int
) -> float:
    """Share of the nodes for which one of several random starts finds a lower minimum."""
    here = fields(rows, nodes, at, beta0, noise)
    y, omega, fitted = here.y, here.omega, here.fitted
    own = rows.minimise(omega, y, at.V, fitted, None).shift
    _, value = rows.descend(own, omega, y, at.V)
    rng = np.random.default_rng(0)
    lower = np.zeros(omega.shape[1], dtype=bool)
    for _ in range(starts):
        start = 2 * rng.normal(size=omega.shape) * (np.abs(fitted) + np.abs(omega))
        _, other = rows.descend(start - omega, omega, y, at.V)
        lower |= other < value * (1 - 1e-6)
    return float(lower.mean())


def _jump_distance(rows: SoftmaxRows, here: Fields, at: Geometry, found: Minima, beta0: float) -> Array:
    """First-order distance in (z0, z) of the twofold samples from the jump where their minima tie.

    The gradient of the gap between the minima follows from the envelope theorem.
    """
    two = found.twofold
    best, rival = found.shift[:, two], found.rival
    centre = here.omega[:, two]
    P, Q = (rows.probabilities(centre + shift) for shift in (best, rival))
    in_omega = best - rival
    # d(V loss)/dy = -2 V (P - y): y cancels in the difference. It moves with u0 through its own softmax.
    clean = rows.probabilities(at.Q**0.5 * here.z0[:, two], beta0)
    in_u0 = rows.pull_back(clean, 2 * at.V * (P - Q)) * (beta0 / rows.beta)
    in_z0 = at.m / at.Q**0.5 * in_omega + at.Q**0.5 * in_u0
    slope = np.sqrt((in_z0**2).sum(0) + at.b**2 * (in_omega**2).sum(0) + 1e-300)
    return np.asarray(found.gap / slope)
