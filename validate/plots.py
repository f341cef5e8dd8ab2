"""Pictures of curves, readable in print and by the colour-blind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import ArrayLike

from derive.exact import ProblemError
from derive.overlaps import TERMS
from derive.tiling import Tile
from numerics.spectrum import Spectrum
from validate.spectrum import ZERO

__all__ = ["COLOURS", "plot_curve", "plot_emergence", "plot_phases", "plot_spectrum", "plot_terms"]

# Okabe and Ito's palette, safe for the colour-blind; line styles tell the curves apart in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Light enough for black numbers on them, and apart in lightness too.
_FILLS = (
    "#DDDDDD",
    "#56B4E9",
    "#F0E442",
    "#E69F00",
    "#CC79A7",
    "#7FD3B7",
    "#B3CDE3",
    "#FDDBC7",
    "#C9B3DE",
)
_STYLES = ("-", "--", "-.", ":")
_AXES = {"alpha": r"$\alpha = n/d^2$", "alpha_bar": r"$\bar\alpha = L_{\mathrm{eff}}\, n/d^2$"}
_MOST_PANELS = 4
_BARS = 50
_PANELS = (("excess_risk", "excess risk $R$"), ("train_loss", "train loss"), ("test_loss", "test loss"))


def plot_curve(rows: list[dict[str, Any]], path: Path, *, optimal: bool, axis: str = "alpha") -> None:
    """Draw R, train and test loss against alpha, one line for each penalty and lam.

    Raises
    ------
    ProblemError
        The ending of the file names no picture format, or nothing was solved.
    """
    plt = pyplot()

    good = [row for row in rows if "failure" not in row]
    if not good:
        raise ProblemError("no point of the curve was solved, so there is nothing to draw")
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in good:
        label = f"{row['penalty']}, " if len({r["penalty"] for r in good}) > 1 else ""
        label += "best $\\lambda$" if optimal else _penalty_label(float(row["lam"]))
        groups.setdefault(label, []).append(row)
    figure, axes = plt.subplots(1, len(_PANELS), figsize=(4 * len(_PANELS), 3.4), layout="constrained")
    for panel, (key, title) in zip(axes, _PANELS, strict=True):
        for i, (label, points) in enumerate(groups.items()):
            panel.plot(
                [float(p[axis]) for p in points],
                [float(p[key]) for p in points],
                color=COLOURS[i % len(COLOURS)],
                linestyle=_STYLES[i % len(_STYLES)],
                marker="o" if len(points) < 3 else None,
                label=label,
            )
        panel.set_xlabel(_AXES[axis])
        panel.set_title(title)
        panel.set_ylim(bottom=0)
    axes[0].legend(frameon=False, fontsize=8)
    save(figure, path)


def plot_terms(rows: list[dict[str, Any]], path: Path, title: str, *, axis: str = "alpha") -> None:
    """The terms of the error, and below them how much of the target is recovered.

    Along alpha, one pair of panels for each of at most four lam; along lam where there is one alpha.

    Raises
    ------
    ProblemError
        Fewer than two points were solved, or there are too many lam for panels.
    """
    plt = pyplot()

    good = [row for row in rows if "failure" not in row]
    if len(good) < 2:
        raise ProblemError("a curve of the terms needs two points of alpha or lam that are solved")
    along = axis if len({row["alpha"] for row in good}) > 1 else "lam"
    groups: dict[float | str, list[dict[str, Any]]] = {}
    for row in good:
        groups.setdefault("" if along == "lam" else row["lam"], []).append(row)
    if len(groups) > _MOST_PANELS:
        if all(len(group) == 1 for group in groups.values()):  # the best lam of each alpha
            groups = {"best": good}
        else:
            raise ProblemError(f"the picture has room for {_MOST_PANELS} lam, not {len(groups)}")
    error = "excess_risk" if "excess_risk" in good[0] else "test_loss"
    size = {"figsize": (4.6 * len(groups), 5.4), "layout": "constrained"}
    grid: dict[str, Any] = {"sharex": "col", "sharey": "row", "squeeze": False, "height_ratios": (3, 1)}
    figure, axes = plt.subplots(2, len(groups), **size, **grid)
    for column, (lam, points) in enumerate(groups.items()):
        _draw_terms(axes[:, column], points, along, error)
        best = r"best $\lambda$" if lam == "best" else ""
        axes[0, column].set_title(best if isinstance(lam, str) else _penalty_label(lam), fontsize=9)
    axes[0, 0].set_ylabel("excess risk $R$" if error == "excess_risk" else "test loss")
    axes[1, 0].set_ylabel("recovered", fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=8, wrap=True)
    save(figure, path)


def _draw_terms(panels: Any, points: list[dict[str, Any]], along: str, error: str) -> None:
    """One pair of panels: the terms, and the outliers or the recovered share of a continuous law."""
    x = [float(point[along]) for point in points]
    scale = "log" if min(x) > 0 and max(x) > 8 * min(x) else "linear"
    style = {"marker": "o" if len(x) < 30 else None, "markersize": 3}
    panels[0].plot(x, [point[error] for point in points], color="black", lw=2, label="total")
    shown = [name for name in ("offset", *TERMS) if any(abs(p[name]) > 0 for p in points)]
    for i, name in enumerate(shown):
        look = {"color": COLOURS[i], "linestyle": _STYLES[i % len(_STYLES)]}
        panels[0].plot(x, [point[name] for point in points], label=name, **look, **style)
    panels[0].axhline(0, color="0.8", lw=0.6, zorder=0)
    counted = any(point["outliers"] > 1 for point in points)
    found = [point["outliers" if counted else "recovered"] for point in points]
    panels[1].step(x, found, where="mid", color=COLOURS[0])
    panels[1].set_ylim(bottom=0)
    panels[1].set_xscale(scale)
    panels[1].set_xlabel(r"$\lambda$" if along == "lam" else _AXES[along])
    note = "outliers" if counted else "share of directions"
    panels[1].text(0.02, 0.85, note, transform=panels[1].transAxes, fontsize=8)


def plot_phases(found: Sequence[Tile], path: Path, title: str) -> None:
    """The phase diagram in the plane (a, l): one colour for each regime, with its f written in it.

    Raises
    ------
    ProblemError
        The picture cannot be written.
    """
    plt = pyplot()
    from matplotlib.collections import PolyCollection

    groups: dict[str, list[Tile]] = {}
    for tile in found:
        groups.setdefault(tile.regime.name, []).append(tile)
    figure, panel = plt.subplots(figsize=(7.5, 5), layout="constrained")
    for i, (name, members) in enumerate(groups.items()):
        corners = [[(float(x), float(y)) for x, y in tile.corners] for tile in members]
        slope = -members[0].exponent[0]
        colour = _FILLS[i % len(_FILLS)]
        # Edges in the colour of the face: the seams between the pieces of one regime stay invisible.
        panel.add_collection(
            PolyCollection(corners, facecolors=colour, edgecolors=colour, linewidths=0.4, label=name)
        )
        widest = max(corners, key=_area)
        x, y = (sum(c[axis] for c in widest) / len(widest) for axis in (0, 1))
        panel.text(x, y, f"f = {slope}", ha="center", va="center", fontsize=8)
    panel.autoscale()
    panel.margins(0)
    panel.set_xlabel(r"$a = \log_d n$")
    panel.set_ylabel(r"$\ell = \log_d \lambda$")
    panel.set_title(title)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    save(figure, path)


def _area(corners: list[tuple[float, float]]) -> float:
    pairs = zip(corners, [*corners[1:], corners[0]], strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairs)) / 2


def plot_emergence(
    curve: Sequence[tuple[float, float]], events: Sequence[dict[str, Any]], path: Path, title: str
) -> None:
    """The staircase R(n), the sample sizes at which modes appear, and the power law beside it.

    Raises
    ------
    ProblemError
        The picture cannot be written.
    """
    plt = pyplot()

    figure, panel = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
    panel.loglog(*zip(*curve, strict=True), color=COLOURS[0], label="state evolution")
    sizes = [event["n"] for event in events]
    risks, laws = ([event[key] for event in events] for key in ("R", "envelope"))
    panel.loglog(sizes, risks, "o", ms=4, color=COLOURS[1], label="mode appears")
    panel.loglog(sizes, laws, "--", color=COLOURS[6], label="power law")
    for size in sizes:
        panel.axvline(size, color="0.85", lw=0.6, zorder=0)
    panel.set_xlabel("samples $n$")
    panel.set_ylabel("excess risk $R$")
    panel.set_title(title)
    panel.legend(frameon=False, fontsize=8)
    save(figure, path)


def plot_spectrum(
    found: Spectrum, path: Path, title: str, quantity: str, samples: ArrayLike = ()
) -> None:
    """Density of ``quantity``, with its outliers and the mass of the atom at zero.

    Parameters
    ----------
    samples : array, optional
        Values of trained networks, all of them, for a histogram behind the density; what stands for the
        atom at zero is left out of its bars but not of their scale.

    Raises
    ------
    ProblemError
        The picture cannot be written.
    """
    plt = pyplot()

    figure, panel = plt.subplots(figsize=(6.5, 4), layout="constrained")
    values = np.asarray(samples, dtype=float)
    if values.size:
        shown = values[values > ZERO * values.max()] if found.atom else values
        edges = np.linspace(0 if found.atom else values.min(), values.max(), _BARS + 1)
        weights = np.full(shown.size, 1 / (values.size * (edges[1] - edges[0])))
        panel.hist(shown, edges, weights=weights, color="0.8", label="trained networks")
    for band in found.bands:
        panel.plot(band.x, band.density, color=COLOURS[0])
        panel.fill_between(band.x, band.density, color=COLOURS[0], alpha=0.15)
        if band.low == band.high:  # an atom of a target that is recovered without noise
            panel.axvline(float(band.low), color=COLOURS[0])
    if found.outliers:
        places = [float(outlier.eigenvalue) for outlier in found.outliers]
        panel.plot(places, [0.0] * len(places), "^", color=COLOURS[1], clip_on=False, label="outliers")
    if panel.get_legend_handles_labels()[0]:
        panel.legend(frameon=False)
    panel.set_ylim(bottom=0)
    panel.set_xlabel(quantity)
    panel.set_ylabel("density")
    panel.set_title(f"{title}\natom at zero: {found.atom:.4g}", fontsize=8, wrap=True)
    save(figure, path)


def pyplot() -> Any:
    """Pyplot without a display, imported where a picture is asked for."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ProblemError(f"cannot draw to {path}: {error}") from None
    finally:
        pyplot().close(figure)


def _penalty_label(lam: float) -> str:
    return f"$\\lambda$ = {lam:.4g}" if lam else "$\\lambda \\to 0^+$"
