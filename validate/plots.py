"""Pictures of curves, readable in print and by the colour-blind."""

from pathlib import Path
from typing import Any

import matplotlib

from derive.exact import ProblemError

__all__ = ["plot_curve"]

# Okabe and Ito's palette, safe for the colour-blind; line styles tell the curves apart in grey.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", "-.", ":")
_AXES = {"alpha": r"$\alpha = n/d^2$", "alpha_bar": r"$\bar\alpha = L_{\mathrm{eff}}\, n/d^2$"}
_PANELS = (("excess_risk", "excess risk $R$"), ("train_loss", "train loss"), ("test_loss", "test loss"))


def plot_curve(rows: list[dict[str, Any]], path: Path, *, optimal: bool, axis: str = "alpha") -> None:
    """Draw R, train and test loss against alpha, one line for each penalty and lam.

    Raises
    ------
    ProblemError
        The ending of the file names no picture format, or nothing was solved.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

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
                color=_COLOURS[i % len(_COLOURS)],
                linestyle=_STYLES[i % len(_STYLES)],
                marker="o" if len(points) < 3 else None,
                label=label,
            )
        panel.set_xlabel(_AXES[axis])
        panel.set_title(title)
        panel.set_ylim(bottom=0)
    axes[0].legend(frameon=False, fontsize=8)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ProblemError(f"cannot draw to {path}: {error}") from None
    finally:
        plt.close(figure)


def _penalty_label(lam: float) -> str:
    return f"$\\lambda$ = {lam:.4g}" if lam else "$\\lambda \\to 0^+$"
