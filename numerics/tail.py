"""Sums over many modes of a power law with few evaluations.

Sum_i phi(i) over a run of integers is exact for polynomials of degree 2 m - 1 with m nodes: Gauss
quadrature of the discrete uniform measure, whose orthogonal polynomials are Gram's (discrete Chebyshev).
Runs that grow geometrically resolve any phi that varies on the scale of i itself, as functions of
s_i = i^(-gamma) do.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

__all__ = ["MERGED_ABOVE", "merged_indices"]

Array = NDArray[np.float64]

MERGED_ABOVE = 4000  # fewer modes are all kept, as at high precision
# Modes kept one by one, growth of the runs, nodes on each; the second is a check on the first.
_RULES = ((2000, 1.15, 10), (4000, 1.08, 12))


@lru_cache(maxsize=256)
def gram_rule(length: int, order: int) -> tuple[Array, Array]:
    """Nodes in [0, length - 1] and weights with the sum ``length``."""
    k = np.arange(1, order, dtype=float)
    squares = k**2 * (float(length) ** 2 - k**2) / (4 * (4 * k**2 - 1))
    nodes, vectors = eigh_tridiagonal(np.full(order, (length - 1) / 2), np.sqrt(squares))
    return nodes, length * vectors[0] ** 2


def merged_indices(modes: int, fine: bool = False) -> tuple[Array, Array]:
    """Indices (real numbers) and multiplicities that stand for 1..modes.

    A cut between well separated modes beyond the first thousands is resolved to the spacing of the nodes
    only; ``fine`` has closer ones, and the difference measures what that costs.
    """
    head, growth, order = _RULES[fine]
    head = min(head, modes)
    indices, counts = [np.arange(1.0, head + 1)], [np.ones(head)]
    start = head + 1
    while start <= modes:
        length = min(max(int(start * (growth - 1)), order + 1), modes - start + 1)
        if length <= order:
            indices.append(np.arange(start, start + length, dtype=float))
            counts.append(np.ones(length))
        else:
            nodes, weights = gram_rule(length, order)
            indices.append(start + nodes)
            counts.append(weights)
        start += length
    return np.concatenate(indices), np.concatenate(counts)
