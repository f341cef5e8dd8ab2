"""The state evolution of a power-law target in exponents: what balances what.

n = d^a, lam = d^l, Delta = d^delta, p = d^w. A sum of monomials becomes the maximum of linear forms
(max-plus algebra). Each `Balance` is read off derived expressions: the width and shrinkage equations,
the share of a mode, the noise that passes the cut (THEORY.md section 7).
"""

from dataclasses import dataclass
from functools import cache

import sympy as sp

from derive import symbols as s
from derive.limit_laws import edge_exponents
from derive.modes import mode, strength
from derive.saddle import reduced_system
from derive.spectra import CutMoment

__all__ = [
    "Balance",
    "Passage",
    "a",
    "delta",
    "gamma",
    "l",
    "linear_balance",
    "log_d",
    "monomial",
    "r",
    "t2",
    "w",
]

gamma = sp.Symbol("gamma", positive=True)
# Exponents of n, lam, Delta, p; of R and tau^2; of theta.
a, l, delta, w, r, t2, th = sp.symbols("a l delta w r t2 theta", real=True)
d, n, p, k = sp.symbols("d n p k", positive=True)
_EXPONENTS = {d: 1, n: a, p: w, s.lam: l, s.Delta: delta, s.R: r, s.tau2: t2, s.theta: th}


def log_d(expression: sp.Expr, **also: sp.Expr) -> list[sp.Expr]:
    """Exponents of the monomials of a sum: log_d of each, without its constant.

    Raises
    ------
    ValueError
        A term is not a monomial in the scaled quantities.
    """
    exponents = {str(symbol): form for symbol, form in _EXPONENTS.items()} | also
    forms = []
    for term in sp.Add.make_args(sp.expand(sp.expand_power_base(expression, force=True))):
        form = sp.Integer(0)
        for base, power in term.as_powers_dict().items():
            if base.free_symbols - {gamma}:
                if str(base) not in exponents:
                    raise ValueError(f"not a monomial: {term}")
                form += power * exponents[str(base)]
        forms.append(sp.expand(form))
    return forms


def monomial(form: sp.Expr) -> str:
    """A linear form as the monomial whose exponent it is, such as ``lam d^2/n``."""
    factors = {"lam": l, "Delta": delta, "n": a, "p": w}
    rest = sp.expand(form)
    powers = {name: sp.factor(rest.coeff(symbol)) for name, symbol in factors.items()}
    powers["d"] = sp.factor(rest.subs(dict.fromkeys(factors.values(), 0)))
    above = [_power(name, e) for name, e in powers.items() if e != 0 and not _negative(e)]
    below = [_power(name, -e) for name, e in powers.items() if e != 0 and _negative(e)]
    if not below:
        return " ".join(above) or "1"
    bottom = below[0] if len(below) == 1 else f"({' '.join(below)})"
    return f"{' '.join(above) or 1}/{bottom}"


def _negative(power: sp.Expr) -> bool:
    """Sign of an exponent for gamma > 1/2 (at gamma = 2)."""
    return bool(power.subs(gamma, 2) < 0)


def _power(name: str, power: sp.Expr) -> str:
    text = str(sp.expand(power))
    if power == 1:
        return name
    return f"{name}^{text}" if text.isalnum() else f"{name}^({text})"


@dataclass(frozen=True)
class Passage:
    """How noise passes a cut at the edge of the noise: one way for each range of n and p.

    Attributes
    ----------
    name : str
        What happens.
    risk : sympy.Expr
        Exponent of E_over, in `t2` and the parameters.
    conditions : tuple of sympy.Expr
        Linear forms that are positive where this way applies.
    at_edge : bool
        Whether theta is tied to the edge, theta ~ 2 tau, or free to be smaller.
    log_power : int
        Power of log(d/n) that multiplies E_over.
    balance : str
        The equations that fixed it.
    """

    name: str
    risk: sp.Expr
    conditions: tuple[sp.Expr, ...]
    at_edge: bool
    log_power: int
    balance: str


@dataclass(frozen=True)
class Balance:
    """The equations of one model in exponents.

    Attributes
    ----------
    noise : sympy.Expr
        Exponent of tau^2 where `r` stands for that of R + Delta.
    shrinkage : sympy.Expr
        Exponent of theta where the penalty sets it.
    largest, weight : sympy.Expr
        Exponents of the largest mode s_1 and of the weight of a mode in R.
    passages : tuple of Passage
        How noise passes.
    """

    name: str
    noise: sp.Expr
    shrinkage: sp.Expr
    largest: sp.Expr
    weight: sp.Expr
    passages: tuple[Passage, ...]

    def missed(self, kappa: sp.Expr) -> sp.Expr:
        """Exponent of the modes beyond k = d^kappa: sum_{i>k} s_i^2 ~ k s_k^2, as 2 gamma > 1."""
        return sp.expand(self.weight + 2 * self.largest + kappa * (1 - 2 * gamma))

    def recovered(self, kappa: sp.Expr, squared: sp.Expr) -> sp.Expr:
        """Exponent of k modes that add theta^2 or tau^2 (given as ``squared``) each."""
        return sp.expand(self.weight + kappa + squared)


def noise_width() -> sp.Expr:
    """tau^2 as a function of R = `symbols.R`, from the width equation of the linear task."""
    system = reduced_system()
    risk = system.outputs["excess_risk"]
    right = s.tau2 - system.width
    share = sp.diff(right, s.Q0) / sp.diff(risk, s.Q0)
    rest = sp.simplify(right - share * risk)
    if rest.free_symbols - {s.Delta, s.alpha} or rest.atoms(CutMoment):
        raise ValueError("the width equation is not one between tau^2 and R")
    return sp.expand(share * s.R + rest)


def penalised_threshold() -> sp.Expr:
    """theta = lam/A where psi << alpha."""
    system = reduced_system()
    (psi,) = system.A.atoms(CutMoment)
    return sp.solve(system.shrinkage.subs(psi, 0), s.theta)[0]


def mode_limits() -> tuple[sp.Expr, sp.Expr]:
    """Bias and variance of a mode far above the cut: its share of d R as s -> oo, in theta and tau2."""
    share = sp.limit(mode().risk, strength, sp.oo)
    bias = share.subs(s.tau2, 0)
    return bias, sp.expand(share - bias)


@cache
def linear_balance() -> Balance:
    """The linear task: a GOE bulk with a square-root edge, capped at the width of the student."""
    in_n = {s.alpha: n / d**2}
    # R and Delta enter alike.
    (tau2,) = {log_d(term.subs(in_n))[0].subs(delta, r) for term in noise_width().args}
    (theta,) = log_d(penalised_threshold().subs(in_n))
    for share, symbol in zip(mode_limits(), (s.theta, s.tau2), strict=True):
        if sp.diff(share, symbol) == 0:
            raise ValueError("a recovered mode costs neither bias nor variance")
    (samples,) = log_d(n / d**2)
    return Balance("linear", tau2, theta, sp.Rational(1, 2), sp.Integer(-1), _edge_passages(samples))


def _edge_passages(samples: sp.Expr) -> tuple[Passage, ...]:
    """Ways through a square-root edge at theta = 2 tau (1 - eps), of at most p eigenvalues.

    psi = 2 alpha as long as eps < 1 (A = lam/theta is positive and small against alpha): psi, E_over
    and the mass above the cut are powers of eps; a cap at mass p/d replaces the mass.
    """
    psi, over, mass = (edge_exponents()[name][1] for name in ("psi", "E_over/tau2", "mass"))
    cap = w - 1
    free = samples / psi
    capped = (samples - cap) / (psi - mass)
    return (
        Passage(
            "interpolating bulk",
            t2 + over * free,
            (-samples, cap - mass * free),
            True,
            0,
            f"psi ~ eps^({psi}) = 2 alpha, E_over ~ tau^2 eps^({over})",
        ),
        Passage(
            "interpolating narrow student",
            t2 + (over - mass) * capped + cap,
            (cap - samples, mass * capped - cap),
            True,
            0,
            f"p/d eigenvalues with psi ~ eps^({psi - mass}) p/d = 2 alpha, "
            f"E_over ~ tau^2 eps^({over - mass}) p/d",
        ),
        Passage(
            "half the bulk passes",
            t2 + cap,
            (samples - cap,),
            False,
            0,
            "theta << tau, E_over ~ tau^2 min(1, p/d)",
        ),
    )
