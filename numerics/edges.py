"""Edges of the bands of S0 + tau G, and where two bands touch, to any digits (`derive.edges`)."""

from itertools import pairwise
from typing import Any

import sympy as sp
from mpmath.ctx_mp import MPContext
from scipy.optimize import brentq

from derive.edges import splitting_width
from derive.generate import compile_function
from derive.targets import Target
from numerics.convolution import FreeConvolution
from numerics.laws import Law, float_law
from numerics.mp_convolution import MPConvolution
from numerics.precision import polish

__all__ = ["band_edges", "critical", "gaps", "touching"]


def gaps(target: Target) -> list[tuple[float, float]]:
    """Gaps between the intervals of the target's support, from the top down."""
    support = float_law(target).support
    return [(float(low), float(high)) for (_, low), (high, _) in pairwise(support)][::-1]


def critical(nu: MPConvolution, rough: float) -> Any:
    """The real w with dz/dw = 0 next to a float64 one."""
    ctx = nu.ctx
    return polish(lambda u: nu.map(ctx.mpc(u, 0))[1].real, rough, ctx.sqrt(nu.tau2), ctx)


def band_edges(law: Law, near: FreeConvolution, tau2: Any, ctx: MPContext) -> list[tuple[Any, Any]]:
    """Both edges of each band in increasing order.

    Parameters
    ----------
    law : Law
        In ``ctx``.
    near : FreeConvolution
        The same in float64, where the iteration starts.

    Raises
    ------
    ValueError
        An edge was not found: two bands are too close to touching for float64.
    """
    nu = MPConvolution(law, tau2, ctx)

    def image(rough: float) -> Any:
        return nu.map(ctx.mpc(critical(nu, rough), 0))[0].real

    return [(image(low), image(high)) for low, high in near.band_preimages()]


def touching(target: Target, gap: tuple[float, float], law: Law) -> tuple[Any, Any]:
    """Width tau2 of the noise at which a gap of the target closes, and the x where the bands touch.

    Parameters
    ----------
    law : Law
        The target in an mpmath context.
    """
    ctx, (low, high) = law.ctx, gap
    rough = float_law(target)
    inset = 1e-6 * (high - low)
    start = brentq(lambda u: complex(rough.curvature(complex(u, 0))).real, low + inset, high - inset)

    # In units of its terms: G0'' has the size of |G0'|^(3/2).
    scale = abs(complex(rough.stieltjes(complex(start, 0))[1])) ** -1.5

    def curvature(u: Any) -> Any:
        return law.curvature(ctx.mpc(u, 0)).real * scale

    point = polish(curvature, start, high - low, ctx)
    slope = law.stieltjes(ctx.mpc(point, 0))[1].real
    argument = (sp.Symbol("G0_slope", real=True),)
    width = compile_function("width", argument, {"tau2": splitting_width()}, "mpmath", ctx)
    tau2 = width(slope)[0]
    return tau2, MPConvolution(law, tau2, ctx).map(ctx.mpc(point, 0))[0].real
