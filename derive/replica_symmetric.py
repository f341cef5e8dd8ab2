"""Replica-symmetric matrices for a symbolic number of replicas: determinant and inverse.

Every block is x 1 + y J with the matrix of ones J; J^2 = n_r J closes the algebra.
"""

from dataclasses import dataclass
from functools import cache

import sympy as sp

from derive.replica_notation import OVERLAPS, n_r

__all__ = ["overlap_determinant", "overlap_inverse", "overlap_matrix"]


@dataclass(frozen=True)
class Block:
    """The n_r x n_r matrix ``diagonal`` 1 + ``ones`` J."""

    diagonal: sp.Expr
    ones: sp.Expr

    def __matmul__(self, other: "Block") -> "Block":
        ones = self.diagonal * other.ones + self.ones * other.diagonal + n_r * self.ones * other.ones
        return Block(self.diagonal * other.diagonal, sp.expand(ones))

    @property
    def inverse(self) -> "Block":
        """Solve (x 1 + y J)(u 1 + v J) = 1."""
        u, v = sp.symbols("u v")
        product = self @ Block(u, v)
        found = sp.solve([product.diagonal - 1, product.ones], [u, v], dict=True)[0]
        return Block(sp.factor(found[u]), sp.factor(found[v]))

    @property
    def determinant(self) -> sp.Expr:
        """x once for every direction orthogonal to (1, ..., 1), x + n_r y along it."""
        return self.diagonal ** (n_r - 1) * (self.diagonal + n_r * self.ones)

    @property
    def total(self) -> sp.Expr:
        """Sum of all entries."""
        return n_r * self.diagonal + n_r**2 * self.ones


def overlap_matrix(replicas: int, entries: tuple[sp.Expr, ...]) -> sp.Matrix:
    """The explicit matrix of the target and so many replicas from (Q0, m, r, q)."""
    Q0, m, r, q = entries
    size = replicas + 1

    def entry(a: int, c: int) -> sp.Expr:
        if a == 0 or c == 0:
            return Q0 if a == c else m
        return r if a == c else q

    return sp.Matrix(size, size, entry)


@cache
def overlap_determinant() -> sp.Expr:
    """Determinant of the overlap matrix of target and n_r replicas: Schur complement of the replicas."""
    Q0, m, r, q = OVERLAPS
    block = Block(r - q, q)
    complement = Q0 - m**2 * sp.factor(block.inverse.total)
    along = sp.factor(sp.together(complement * (block.diagonal + n_r * block.ones)))
    return block.diagonal ** (n_r - 1) * along


@cache
def overlap_inverse() -> tuple[sp.Expr, sp.Expr, sp.Expr, sp.Expr]:
    """Entries of the inverse: target-target, target-replica, replica-replica, replica-other."""
    Q0, m, r, q = OVERLAPS
    # Eliminate the target: what is left of a replica is r - m^2/Q0, of a pair q - m^2/Q0.
    reduced = Block(r - q, q - m**2 / Q0).inverse
    field = -m / Q0 * (reduced.diagonal + n_r * reduced.ones)
    own = 1 / Q0 + m**2 / Q0**2 * reduced.total
    entries = (own, field, reduced.diagonal + reduced.ones, reduced.ones)
    a, b, c, e = (sp.factor(sp.together(entry)) for entry in entries)
    return a, b, c, e
