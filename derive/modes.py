"""What one recovered eigenvalue of the target adds to the state evolution.

A mode of weight 1/d at eigenvalue s perturbs the noise bulk G0 = 1/w of S0 = 0. To first order in the
weight, its share of a cut moment is the residue at w = s of the integrand (z - theta)^k G0^j z' along
z(w) = w + tau2 G0(w) (`derive.spectra.CutMoment`).
"""

from dataclasses import dataclass
from functools import cache

import sympy as sp

from derive import symbols as s
from derive.saddle import reduced_system
from derive.spectra import CutMoment, w

__all__ = ["Mode", "mode", "mode_share", "recovered_strength", "strength"]

strength = sp.Symbol("s", positive=True)


def mode_share(j: int, k: int) -> sp.Expr:
    """Share of a mode of eigenvalue ``strength`` in the cut moment [j, k], per unit of its weight."""
    bulk, pole = 1 / w, 1 / (w - strength)
    weight = sp.Symbol("weight")
    transform = bulk + weight * pole
    z = w + s.tau2 * transform
    integrand = (z - s.theta) ** k * transform**j * sp.diff(z, w)
    first = sp.diff(integrand, weight).subs(weight, 0)
    return sp.factor(sp.residue(sp.together(first), w, strength))


@dataclass(frozen=True)
class Mode:
    """A mode above the noise bulk, in terms of `strength`, tau2 and theta (THEORY.md sections 4 and 8).

    Attributes
    ----------
    position : sympy.Expr
        Eigenvalue of S0 + tau G that it becomes.
    overlap : sympy.Expr
        Squared overlap of its eigenvector with the target's; positive above the BBP transition.
    transition : sympy.Expr
        Strength at which the overlap vanishes.
    risk : sympy.Expr
        What it adds to d R once it passes the cut; s^2 before. Summed over modes: THEORY.md section 8.
    susceptibility : sympy.Expr
        What it adds to d psi.
    misaligned, mismatched : sympy.Expr
        The two parts of ``risk``: the direction is only partly aligned, s^2 (1 - w^2), and the learned
        eigenvalue x is off the minimum s w of the error, (x - s w)^2.
    """

    position: sp.Expr
    overlap: sp.Expr
    transition: sp.Expr
    risk: sp.Expr
    susceptibility: sp.Expr
    misaligned: sp.Expr
    mismatched: sp.Expr


@cache
def mode() -> Mode:
    """Derive the shares from the subordination map and the reduced state evolution."""
    position = strength + s.tau2 / strength
    # <v|(z - B)^(-1)|v> = 1/(w(z) - s) has the residue dz/dw at w = s.
    overlap = sp.diff(position, strength)
    transition = next(x for x in sp.solve(overlap, strength) if x.subs(s.tau2, 1).is_positive)
    risk = reduced_system().outputs["excess_risk"]
    shares = {moment: mode_share(*map(int, moment.args[:2])) for moment in risk.atoms(CutMoment)}
    own = sp.expand(risk.subs(shares).subs(s.Q0, strength**2))
    misaligned = strength**2 * (1 - overlap**2)
    mismatched = (position - s.theta - strength * overlap) ** 2
    if sp.expand(misaligned + mismatched - own) != 0:
        raise ValueError("alignment and eigenvalue do not make up the risk of a mode")
    return Mode(position, overlap, transition, own, mode_share(2, 1), misaligned, mismatched)


@cache
def recovered_strength() -> sp.Expr:
    """The strength above the BBP transition that a position x of S0 + tau G belongs to."""
    roots = sp.solve(sp.Eq(mode().position, s.x), strength)
    # The other root is its mirror image tau2/s, below the transition.
    return next(root for root in roots if root.subs({s.tau2: 1, s.x: sp.Rational(5, 2)}) > 1)
