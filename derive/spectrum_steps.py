"""The derivation of the learned spectrum as steps to print: edges, outliers, terms of the error."""

import sympy as sp

from derive import symbols as s
from derive.edges import (
    edge_polynomial,
    edge_slope,
    marchenko_pastur_splitting,
    splitting_width,
    subordination,
)
from derive.modes import mode, strength
from derive.overlaps import (
    eigenvalue_cost,
    fit,
    in_m,
    in_q,
    learned,
    linear_slopes,
    overlap_kernel,
    seen,
    seen_target,
    terms,
)
from derive.singular import singular, weight_singular_value
from derive.spectra import marchenko_pastur_inverse, marchenko_pastur_stieltjes, w
from derive.steps import Step
from derive.thresholds import collapse_penalty, on_width

__all__ = ["spectrum_steps"]

_KAPPA0 = sp.Symbol("kappa0", positive=True)


def spectrum_steps() -> list[Step]:
    """Every step from the learned matrix to its spectrum and the four terms of the error."""
    return [*_law_steps(), *_edge_steps(), *_mode_steps(), *_term_steps()]


def _law_steps() -> list[Step]:
    z, S = sp.symbols("z S")
    return [
        Step(
            "the learned matrix",
            sp.Symbol("S = argmin of the spectral potential at B = M*S0 + sqrt(C)*G"),
            "tau2 = C/M^2, theta = lam/M, rho = M/A; lam = 0 and rho = m/Q0 for the Frobenius penalty",
            sp.Eq(S, sp.Symbol("rho*(S0 + tau*G - theta)_+")),
        ),
        Step(
            "subordination",
            sp.Symbol("R-transforms add: tau2*g of tau*G and that of S0"),
            "the Stieltjes transform of S0 + tau G at z(w) is that of S0 at w",
            sp.Eq(z, subordination()),
        ),
        Step(
            "the Marchenko-Pastur target",
            sp.Eq(w, marchenko_pastur_inverse(_KAPPA0)),
            "solve the quadratic for g = G0(w)",
            sp.Eq(sp.Symbol("G0"), marchenko_pastur_stieltjes(_KAPPA0)[1]),
        ),
        Step(
            "singular values of W",
            sp.Symbol("S = W W'/sqrt(p*d)"),
            "solve x = sigma^2/sqrt(p d); the tied query-key map is S itself",
            sp.Eq(singular, weight_singular_value()),
        ),
    ]


def _edge_steps() -> list[Step]:
    tau2, transform = marchenko_pastur_splitting(_KAPPA0)
    lam, width = collapse_penalty(sp.Symbol("edge"))
    at = on_width()
    return [
        Step("edges", subordination(), "z(w) stops increasing", sp.Eq(edge_slope(), 0)),
        Step(
            "edges of the Marchenko-Pastur target",
            sp.Eq(s.x, marchenko_pastur_inverse(_KAPPA0) + s.tau2 * sp.Symbol("g")),
            "discriminant in g of the cubic",
            sp.Eq(edge_polynomial(_KAPPA0), 0),
        ),
        Step(
            "splitting",
            edge_slope(),
            "two edges meet where G0'' = 0 as well; solve dz/dw = 0 for tau2 there",
            sp.Eq(s.tau2, splitting_width()),
        ),
        Step(
            "splitting of the Marchenko-Pastur target",
            sp.Eq(sp.Symbol("w''(g)"), 0),
            "a cubic in g with one real root; the signal band stands apart below that tau2",
            sp.Tuple(sp.Eq(s.tau2, tau2), sp.Eq(sp.Symbol("g"), transform)),
        ),
        Step(
            "where a given tau2 is met",
            sp.Symbol("width and shrinkage equations"),
            "solve for alpha and lam at that tau2, one pair for each theta (linear task)",
            sp.Tuple(sp.Eq(s.alpha, at.alpha), sp.Eq(s.lam, at.lam)),
        ),
        Step(
            "collapse",
            sp.Eq(s.theta, sp.Symbol("edge")),
            "every cut moment vanishes: S = 0 at and above this lam (linear task)",
            sp.Tuple(sp.Eq(s.lam, lam), sp.Eq(s.tau2, width)),
        ),
    ]


def _mode_steps() -> list[Step]:
    shape = mode()
    return [
        Step(
            "outliers",
            sp.Eq(sp.Symbol("z(w)"), w + s.tau2 / w),
            "a mode s of the target in the noise: the pole of the resolvent at w = s",
            sp.Eq(sp.Symbol("x_s"), shape.position),
        ),
        Step(
            "overlap",
            sp.Eq(sp.Symbol("x_s"), shape.position),
            "squared overlap of the eigenvector with the target's: the residue dz/dw at w = s",
            sp.Eq(sp.Symbol("overlap"), shape.overlap),
        ),
        Step(
            "BBP transition",
            sp.Eq(shape.overlap, 0),
            "solve for the strength of the mode",
            sp.Eq(strength, shape.transition),
        ),
        Step(
            "overlap kernel",
            sp.Symbol("E (z - S0 - tau*G)^-1 = (w(z) - S0)^-1"),
            "eigenvector at x, direction at s: rho(x) O(x, s) = -Im(...)/pi at w = w(x + i0)",
            overlap_kernel(),
        ),
        Step(
            "what an eigenvector sees of the target",
            strength * overlap_kernel(),
            "average s over the law of S0: rho(x) y(x) = -Im(...)/pi, y = v' S0 v",
            seen_target(),
        ),
    ]


def _term_steps() -> list[Step]:
    found = terms()
    e_q, e_m = linear_slopes()
    total = found["total"]
    steps = [
        Step(
            "cost of an eigenvalue",
            sp.Symbol("d times the error, which has slopes e_q in q and e_m in m"),
            "an eigenvector with learned eigenvalue F and y = v' S0 v adds F^2/d to q and F y/d to m",
            eigenvalue_cost(),
        ),
        Step(
            "best eigenvalue", sp.Eq(sp.diff(eigenvalue_cost(), learned), 0), "solve for F", fit() * seen
        ),
    ]
    words = {
        "over": "squares of the eigenvectors that fit noise",
        "under": "target directions that are missed, less what those eigenvectors hold of m",
        "approx": "what the best eigenvalues leave of the recovered directions",
        "mismatch": "cost of the learned eigenvalues over the best ones",
    }
    steps += [
        Step(f"E_{name}", eigenvalue_cost(), words[name], sp.Eq(sp.Symbol(f"E_{name}"), found[name]))
        for name in words
    ]
    four = sp.Add(*(sp.Symbol(f"E_{name}") for name in words))
    linear = sp.factor(total.subs({in_q: e_q, in_m: e_m}))
    return [
        *steps,
        Step("the sum", four, "add; checked term by term before it is printed", total),
        Step("the linear task", total, f"e_q = {e_q}, e_m = {e_m}", sp.Eq(s.R, sp.expand(linear))),
    ]
