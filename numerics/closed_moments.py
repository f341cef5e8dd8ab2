"""Cut moments from closed primitives, in any backend: Im/pi of a generated function at one point."""

import cmath
from functools import lru_cache
from typing import Any

import sympy as sp
from mpmath.ctx_mp import MPContext

from derive import symbols as s
from derive.generate import compile_function
from derive.spectra import CUT_MOMENTS, LAW_PRIMITIVES, cut_primitive, g, law_symbol, w

__all__ = ["closed_moments"]

_ARGUMENTS = (w, g, s.tau2, s.theta, *(law_symbol(*ab) for ab in LAW_PRIMITIVES))


@lru_cache(maxsize=1)
def _expressions() -> dict[str, sp.Expr]:
    return {name: cut_primitive(j, k) for (j, k), name in CUT_MOMENTS.items()}


@lru_cache(maxsize=8)
def _function(ctx: MPContext | None) -> Any:
    if ctx is None:
        return compile_function("moments", _ARGUMENTS, _expressions(), "numpy", cmath)
    return compile_function("moments", _ARGUMENTS, _expressions(), "mpmath", ctx)


def closed_moments(law: Any, point: Any, G: Any, tau2: Any, theta: Any) -> dict[str, Any]:
    """All of `derive.spectra.CUT_MOMENTS` by name.

    Parameters
    ----------
    law : law with ``primitives`` and ``ctx``
        ``ctx`` is None in float64.
    point, G : complex
        Preimage of the cut and G0 there; the point lies in the open upper half plane or in a gap.
    """
    primitives = law.primitives(point, G)
    values = _function(law.ctx)(point, G, tau2, theta, *primitives)
    pi = cmath.pi if law.ctx is None else law.ctx.pi
    return {name: value.imag / pi for name, value in zip(CUT_MOMENTS.values(), values, strict=True)}
