"""Averages of the softmax channel over (u0, omega) and label noise, by quadrature."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from numerics.nodes import Nodes
from numerics.prox import SoftmaxRows

__all__ = ["Averages", "Geometry", "channel_averages"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Geometry:
    """Second moments of the fields: u0 = sqrt(Q) z0, omega = (m/sqrt(Q)) z0 + b z, and V."""

    Q: float
    m: float
    b: float
    V: float


@dataclass(frozen=True)
class Averages:
    """What the saddle point and the report need; f = (u* - omega)/V, products summed over components.

    ``train`` and ``test`` are the losses at u* and omega, ``moreau`` the averaged Moreau envelope;
    ``jump_fraction`` is the mass closer than a tenth of a standard deviation of omega to a jump of u*.
    """

    along: float
    across: float
    square: float
    moreau: float
    train: float
    test: float
    jump_fraction: float


_NEAR = 0.1


def labels(rows: SoftmaxRows, nodes: Nodes, Q: float, beta0: float, noise: float) -> Array:
    """Labels at the nodes, shape (T, T, N); noise outside in its part that a student could fit."""
    y = rows.probabilities(Q**0.5 * nodes.z0, beta0)
    if nodes.xi.shape[0]:
        t = rows.tokens
        xi = nodes.xi.reshape(t, t, -1)
        y = y + noise**0.5 * (xi - xi.mean(0))
    return y


def channel_averages(
    rows: SoftmaxRows, nodes: Nodes, at: Geometry, beta0: float, noise: float
) -> Averages:
    """Average over the nodes.

    Parameters
    ----------
    noise : float
        Delta of noise outside the softmax; not used where the nodes carry no label noise.
    """
    y = labels(rows, nodes, at.Q, beta0, noise)
    omega = at.m / at.Q**0.5 * nodes.z0 + at.b * nodes.z
    fitted = rows.preimage(y) if nodes.xi.shape[0] else beta0 / rows.beta * at.Q**0.5 * nodes.z0
    found = rows.minimise(omega, y, at.V, fitted)
    f, w = found.shift / at.V, nodes.weights
    q = at.m**2 / at.Q + at.b**2
    train = float(w @ found.loss)
    square = float(w @ (f * f).sum(0))
    return Averages(
        along=float(w @ (f * nodes.z0).sum(0)),
        across=float(w @ (f * nodes.z).sum(0)),
        square=square,
        moreau=train + at.V * square / 2,
        train=train,
        test=float(w @ rows.loss(rows.probabilities(omega), y)),
        jump_fraction=float(w @ (found.jump_distance < _NEAR * q**0.5)),
    )
