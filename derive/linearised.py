"""Softmax attention at small error: a linear channel with random curvatures.

Close to the target field u0 the loss is a quadratic form, u' H u/2 with H = 2 J'J the Gauss-Newton
part at an exact fit (the residual part vanishes with the error). Its L_eff positive eigenvalues h depend
on u0 alone, so everything that scales with R does as in the linear task: the exponents are the same.
"""

from dataclasses import dataclass, replace
from functools import cache

import sympy as sp

from derive import symbols as s
from derive.balance import Balance, d, delta, linear_balance, log_d, n, r

__all__ = ["Curvature", "SmallError", "small_error", "softmax_balance"]

h = sp.Symbol("h", positive=True)


class Curvature(sp.Function):
    """Sum over the L_eff directions and mean over u0 of a function of the eigenvalue ``h`` of H."""

    nargs = 1

    def _sympystr(self, printer: object) -> str:
        return f"E sum_h[{self.args[0]}]"


@dataclass(frozen=True)
class SmallError:
    """State evolution of a softmax task at R, Delta -> 0, A = M.

    Attributes
    ----------
    A, C : sympy.Expr
        Conjugates in terms of V, R + Delta/2 and curvature averages.
    tau2 : sympy.Expr
        C/A^2.
    many_samples, exact_fit : sympy.Expr
        tau2 where V -> 0 (n far above d^2 or k d) and where V -> oo (interpolation).
    """

    A: sp.Expr
    C: sp.Expr
    tau2: sp.Expr
    many_samples: sp.Expr
    exact_fit: sp.Expr


@cache
def small_error(directions: sp.Expr) -> SmallError:
    """Derive it direction by direction from the quadratic Moreau problem.

    Parameters
    ----------
    directions : sympy.Expr
        L_eff, the number of eigenvalues.
    """
    u, omega, target = sp.symbols("u omega target", real=True)
    objective = h * (u - target) ** 2 / 2 + (u - omega) ** 2 / (2 * s.V)
    best = sp.solve(sp.diff(objective, u), u)[0]
    force = sp.factor((best - omega) / s.V)
    gain = -sp.diff(force, omega)
    if sp.simplify(gain - sp.diff(force, target)) != 0:
        raise ValueError("A != M in the small-error limit")
    # omega - u0' has the variance R + Delta/2 to leading order, independently of u0'.
    A = s.alpha * Curvature(gain)
    C = s.alpha / 2 * Curvature(sp.factor(gain**2)) * (s.R + s.Delta / 2)
    tau2 = C / A**2

    def limit(at: sp.Expr) -> sp.Expr:
        """Curvature averages at V -> at, where the powers of V cancel."""
        leading = {e: Curvature(_leading(e.args[0], at)) for e in tau2.atoms(Curvature)}
        found = tau2.subs(leading)
        ones = {e: _counted(e, directions) for e in found.atoms(Curvature)}
        return sp.simplify(found.subs(ones))

    return SmallError(A, C, tau2, limit(sp.Integer(0)), limit(sp.oo))


def _leading(expression: sp.Expr, at: sp.Expr) -> sp.Expr:
    if at == 0:
        return expression.subs(s.V, 0)
    inverse = sp.Symbol("inverse", positive=True)
    return sp.factor(expression.subs(s.V, 1 / inverse)).as_leading_term(inverse).subs(inverse, 1 / s.V)


def _counted(average: sp.Expr, directions: sp.Expr) -> sp.Expr:
    """A curvature average of what does not depend on h is L_eff times it."""
    (inside,) = average.args
    return average if inside.has(h) else directions * inside


@cache
def softmax_balance() -> Balance:
    """The balance of the linear task, after a check that the softmax changes constants only.

    Raises
    ------
    ValueError
        tau^2 or theta scales differently.
    """
    task, model = small_error(sp.Symbol("L_eff", positive=True)), linear_balance()
    constants = {e: sp.Integer(1) for e in task.tau2.atoms(Curvature)}
    in_n = {s.alpha: n / d**2}
    widths = {form.subs(delta, r) for form in log_d(sp.expand(task.tau2.subs(constants).subs(in_n)))}
    (theta,) = log_d((s.lam / task.A).subs(constants).subs(in_n))
    if widths != {model.noise} or sp.expand(theta - model.shrinkage) != 0:
        raise ValueError("the small-error softmax does not scale as the linear task")
    return replace(model, name="softmax")
