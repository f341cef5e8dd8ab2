"""The state evolution as two maps, for channels without a closed form.

Output side: averages over the channel -> (A, M, C). Spectral side: (A, M, C) -> (q, m, V). Both come out
of the saddle-point equations; they are written in R, mu = Q0 - m and gap = 1 - M/A, in which
nothing cancels as the target is recovered.
"""

from functools import cache

import sympy as sp

from derive import symbols as s
from derive.gaussian import ChannelAverage
from derive.linear import LinearChannel
from derive.saddle import definitions, saddle_equations
from derive.softmax import SoftmaxChannel
from derive.spectra import CutMoment, free_moments, in_cut_moments

__all__ = [
    "across",
    "along",
    "b",
    "defect",
    "gap",
    "geometry",
    "mu",
    "output_side",
    "spectral_side",
    "square",
]

# u0 = sqrt(Q) z0 and omega = (m/sqrt(Q)) z0 + b z with standard normal z0 and z.
Q, b = sp.symbols("Q b", positive=True)
along, across, square = sp.symbols("E[f.z0] E[f.z] E[f.f]", real=True)
mu, gap, defect = sp.symbols("mu gap defect", real=True)


@cache
def geometry(channel: SoftmaxChannel) -> dict[str, sp.Expr]:
    """Q, m, b^2 and m - Q in terms of R, mu, Q0 and Delta.

    b^2 Q = Q q - m^2 is expanded, so that the large terms cancel in the symbols.
    """
    variance = channel.target_variance
    m = s.Q0 - mu
    q = sp.solve(s.Q0 - 2 * m + s.q - s.R, s.q)[0]
    return {
        "Q": variance,
        "m": m,
        "q": sp.expand(q),
        "b2": sp.expand(variance * q - m**2) / variance,
        "shortfall": sp.expand(variance - m),
    }


@cache
def output_side(channel: SoftmaxChannel) -> dict[str, sp.Expr]:
    """A, M, C and gap = (A - M)/A from the averages E[f.z0], E[f.z] and E[f.f] and from Q, m, b.

    ``gap`` is in terms of A and of ``shortfall`` = Q - m.
    """
    equations = saddle_equations(channel, "nuclear")
    root = sp.sqrt(Q)
    values = {
        "field": root * along,
        "student": s.m / root * along + b * across,
        "square": square,
    }

    def insert(expression: sp.Expr) -> sp.Expr:
        # Q0 enters through the variance of u0 only.
        inserted = expression.replace(
            lambda e: isinstance(e, ChannelAverage), lambda e: values[str(e.args[0])]
        )
        in_q0 = sp.solve(channel.target_variance - Q, s.Q0)[0]
        return sp.cancel(sp.together(inserted.subs(s.Q0, in_q0).subs(s.q, b**2 + s.m**2 / Q)))

    A, M, C = (insert(equations[v]) for v in (s.A, s.M, s.C))
    # M is linear in A at fixed E[f.z0]; what is left of A - M is small when the target is recovered.
    solved = sp.solve(A - s.A, across)[0]
    shortfall = sp.Symbol("shortfall", real=True)
    difference = sp.expand((s.A - sp.expand(M.subs(across, solved))).subs(s.m, Q - shortfall))
    return {"A": A, "M": sp.expand(M), "C": C, "gap": sp.expand(difference / s.A)}


@cache
def spectral_side(penalty: str) -> dict[str, sp.Expr]:
    """q, m, V, R, mu, trace, rank fraction, psi and the spectral potential P.

    For the nuclear penalty in A, gap, tau2, theta and cut moments; for the Frobenius one in A, gap,
    C, lam, where gap = 1 - M/(A + lam).
    """
    # The spectral half of the equations is the same for every channel.
    found = definitions(LinearChannel(), penalty)
    legendre = -s.A * s.q / 2 + s.M * s.m + s.C * s.V
    e = {name: found[name] for name in ("q", "m", "V", "trace", "rank_fraction")}
    e["P"] = (found["energy"] - legendre).subs(s.alpha, 0)
    return _nuclear_side(e) if penalty == "nuclear" else _frobenius_side(e)


def _nuclear_side(e: dict[str, sp.Expr]) -> dict[str, sp.Expr]:
    tau2, theta = s.tau2, s.theta
    scaled = {k: in_cut_moments(v, tau2, theta).subs(s.C, tau2 * s.M**2) for k, v in e.items()}
    side = {k: sp.expand(sp.cancel(v.subs(s.M, (1 - gap) * s.A))) for k, v in scaled.items()}
    side["psi"] = sp.expand(2 * s.A * side["V"])
    mass, I1, I2 = (CutMoment(1, k, tau2, theta) for k in range(3))
    # Int_{x>c} x^2 dnu = Q0 - defect in place of I2: R and mu lose no digits when they are small.
    precise = {I2: s.Q0 - defect - 2 * theta * I1 - theta**2 * mass}
    side["mu"] = sp.expand((s.Q0 - side["m"]).subs(precise))
    side["R"] = sp.expand((s.Q0 - 2 * side["m"] + side["q"]).subs(precise))
    return side


def _frobenius_side(e: dict[str, sp.Expr]) -> dict[str, sp.Expr]:
    scale = sp.Symbol("scale", positive=True)

    def at_scale(expression: sp.Expr) -> sp.Expr:
        free = free_moments(expression, s.mean, s.Q0)
        placed = free.subs(s.A, scale - s.lam).subs(s.M, (1 - gap) * scale)
        return sp.expand(sp.cancel(placed))

    side = {k: at_scale(v) for k, v in e.items()}
    side["psi"] = sp.expand(2 * scale * side["V"])
    side["mu"] = sp.expand(s.Q0 - side["m"])
    side["R"] = sp.expand(s.Q0 - 2 * side["m"] + side["q"])
    return {k: v.subs(scale, s.A + s.lam) for k, v in side.items()}
