"""The exponent table and its confirmation, for the terminal, papers and programs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sympy as sp

from derive.balance import Balance, gamma, linear_balance, monomial
from derive.exact import ProblemError, exact
from derive.lasso import lasso_balance
from derive.linearised import softmax_balance
from derive.locate import Place
from derive.regions import region, stated
from derive.scaling import Regime, regimes
from derive.variants import along, best, direct_regimes, noiseless
from numerics.confirm import Confirmation, confirm, deep_point
from validate.tables import Table

__all__ = [
    "CHECK_NOTE",
    "confirmation_row",
    "exponent_records",
    "exponent_table",
    "measurements",
    "place_record",
    "regime_table",
]

_SOFTMAX = "seq2lab", "seq2seq"


def regime_table(
    task: str, penalty: str, lam: str, *, narrow: bool, noise_free: bool
) -> tuple[tuple[Regime, ...], dict[str, sp.Expr | None]]:
    """The regimes of a protocol, and for the best lam the exponent l that attains each.

    Parameters
    ----------
    task : {"linear", "seq2lab", "seq2seq", "lasso"}
        The softmax tasks share the exponents of the linear one (`derive.linearised`).
    penalty : {"nuclear", "frobenius"}
        Factorised or direct training.
    lam : str
        ``free`` (lam = d^l), ``optimal``, or ``n^x``.
    narrow, noise_free : bool
        A student of width d^w, w < 1; Delta = 0.

    Raises
    ------
    ProblemError
        An unknown word, or a protocol that makes no sense.
    """
    if task not in ("linear", "lasso", *_SOFTMAX):
        raise ProblemError(f"unknown task {task!r}: choose from lasso, linear, seq2lab, seq2seq")
    if penalty not in ("nuclear", "frobenius"):
        raise ProblemError(f"unknown penalty {penalty!r}: choose from frobenius, nuclear")
    _refuse_contradictions(task, penalty, lam, narrow)
    if penalty == "frobenius":
        table = direct_regimes()
    elif lam == "optimal":
        found = best(_model(task))
        attained = {b.regime.name: b.penalty for b in found}
        return tuple(b.regime for b in found), attained
    else:
        table = regimes(_model(task), not narrow)
    if noise_free:
        table = noiseless(table)
    if lam not in ("free", "optimal"):
        table = along(table, _power(lam))
    return table, {}


def _refuse_contradictions(task: str, penalty: str, lam: str, narrow: bool) -> None:
    if penalty == "frobenius" and (task == "lasso" or narrow or lam == "optimal"):
        raise ProblemError("direct training has no LASSO, no width, and one table for all lam")
    if narrow and (task == "lasso" or lam == "optimal"):
        raise ProblemError("a narrow student goes with the linear or softmax tasks at lam = d^l")


def _model(task: str) -> Balance:
    if task in _SOFTMAX:
        return softmax_balance()
    return lasso_balance() if task == "lasso" else linear_balance()


def _power(lam: str) -> sp.Expr:
    base, caret, power = lam.partition("^")
    if base.strip() != "n" or not caret:
        raise ProblemError(f"lam reads free, optimal or n^x such as n^1/4, not {lam!r}")
    return exact(power.strip(" ()"), "the power of n")


def exponent_records(
    table: Sequence[Regime],
    value: sp.Expr | None,
    attained: dict[str, sp.Expr | None] | None = None,
    constants: dict[str, sp.Expr] | None = None,
) -> list[dict[str, Any]]:
    """One record for each regime, in strings that keep their exactness.

    Parameters
    ----------
    value : sympy.Expr or None
        gamma, or left as a symbol.
    attained : dict, optional
        Exponent l of the best lam of each regime.
    constants : dict, optional
        R with its constant, by regime (`derive.prefactors.laws`).
    """
    own = {} if value is None else {gamma: value}
    records = []
    for regime in table:
        parts = region(regime, value)
        if not parts:
            continue  # not at this gamma
        logs = f"log(d/n)^({regime.log_power})" if regime.log_power else ""
        record = {
            "regime": regime.name,
            "R": f"{monomial(regime.exponent.subs(own))} {logs}".strip(),
            "exponent": str(sp.expand(regime.exponent.subs(own))),
            "exponent_in_n": str(sp.factor(-regime.f.subs(own))),
            "f": str(sp.factor(regime.f.subs(own))),
            "conditions": [" and ".join(stated(c.subs(own)) for c in part) for part in parts],
            "dominant_term": regime.dominant,
            "ties": list(regime.ties),
            "log_power": regime.log_power,
            "derivation": regime.derivation,
        }
        if constants and regime.name in constants:
            record["law"] = str(constants[regime.name].subs(own))
        if attained:
            penalty = attained[regime.name]
            record["best_lam"] = "any" if penalty is None else monomial(penalty.subs(own))
        records.append(record)
    return records


def exponent_table(records: list[dict[str, Any]], title: str, lasso: list[dict[str, Any]]) -> Table:
    """The records in columns, with those of the LASSO beside them where there are any."""
    beside = {record["regime"]: record for record in lasso}
    columns = ["regime", "R ~", "f(gamma) in n", "largest term"]
    columns += ["best lam ~"] if records and "best_lam" in records[0] else []
    columns += ["LASSO: R ~", "f"] if beside else []
    columns += ["where"]
    rows = []
    for record in records:
        row = [record["regime"], record["R"], record["f"]]
        row.append(" ~ ".join((record["dominant_term"], *record["ties"])))
        row += [record["best_lam"]] if "best_lam" in record else []
        other = beside.get(record["regime"], {})
        row += [other.get("R"), other.get("f")] if beside else []
        rows.append([*row, " or ".join(record["conditions"])])
    return Table(title, columns, rows, _NOTE + (_UNIVERSAL if beside else ""))


_NOTE = (
    "n = d^a, lam = d^l, Delta = d^delta; > means a larger power of d. R ~ n^(-f) at fixed d, lam, "
    "Delta."
)
_UNIVERSAL = """
LASSO: n samples in d dimensions. n -> n/d and lam -> lam sqrt(d) turn its regimes into those of S,
up to logarithms, but for the interpolating one (a Gaussian tail, no square-root edge), which exceeds
the noise-limited law at every lam below the edge of the noise (--lam optimal has both)."""


def place_record(place: Place) -> dict[str, Any]:
    """Where a point is, as a record."""
    return {
        "regime": place.regime.name,
        "exponent": str(place.exponent),
        "f": str(place.f),
        "dominant_term": place.regime.dominant,
        "ties": list(place.regime.ties),
        "conditions": [f"{stated(c)}: {sp.expand(c)} = {value} > 0" for c, value in place.conditions],
        "derivation": place.regime.derivation,
    }


CHECK_NOTE = (
    "At each point n = d^a, lam = d^l, Delta = d^delta with d growing; slopes extrapolated in d. The "
    "noise-limited regime is\nmeasured at the edge of the noise, theta = 2 tau (LASSO: at the best lam)."
)


def measurements(
    table: Sequence[Regime], values: Sequence[sp.Expr], task: str
) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
    """Keys and computations of one measured row for each regime and gamma."""

    def one(regime: Regime, value: sp.Expr) -> dict[str, Any]:
        return next((confirmation_row(c) for c in confirm([regime], [value], task)), {})

    rows = [regime for regime in table if regime.name != "noise-limited"]
    rows += [b.regime for b in best(_model(task)) if b.regime.name == "noise-limited"]
    return [
        (f"{task} {regime.name} {value}", partial(one, regime, value))
        for value in values
        for regime in rows
        if deep_point(regime, value) is not None
    ]


def confirmation_row(found: Confirmation) -> dict[str, Any]:
    """A measured exponent beside the derived one; their distance in per cent of f (of 1 at f = 0)."""
    scale = abs(found.derived) or 1.0
    return {
        "regime": found.regime,
        "gamma": str(found.gamma),
        "at": ", ".join(f"{k} = {v}" for k, v in found.point.items()),
        "d": f"{found.sizes[0]:.0e}..{found.sizes[-1]:.0e}" if found.sizes else "",
        "derived": found.derived,
        "measured": found.measured,
        "error": found.error,
        "off_percent": 100 * abs(found.measured - found.derived) / scale,
    }
