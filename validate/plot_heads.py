"""Pictures of the query-key maps of real heads."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from derive.exact import ProblemError
from validate.heads import HeadSpectrum
from validate.plots import COLOURS, pyplot, save

__all__ = ["plot_heads"]

_MOST = 12
_COLUMNS = 4


def plot_heads(found: Sequence[HeadSpectrum], path: Path, title: str) -> None:
    """Histogram of singular values, fitted bulk and outliers, one panel for each of at most 12 heads.

    Raises
    ------
    ProblemError
        There are more heads than panels, or the picture cannot be written.
    """
    if len(found) > _MOST:
        raise ProblemError(
            f"the picture has room for {_MOST} heads, not {len(found)}: add --layer or --head"
        )
    columns = min(len(found), _COLUMNS)
    rows = ceil(len(found) / columns)
    size = {"figsize": (1 + 2.8 * columns, 1.2 + 2.3 * rows), "layout": "constrained"}
    figure, axes = pyplot().subplots(rows, columns, squeeze=False, **size)
    for panel in axes.flat[len(found) :]:
        panel.set_visible(False)
    for panel, head in zip(axes.flat, found, strict=False):
        _draw(panel, head)
    for panel in axes[-1]:
        panel.set_xlabel("singular value", fontsize=8)
    for panel in axes[:, 0]:
        panel.set_ylabel("density", fontsize=8)
    shown = (panel.get_legend_handles_labels() for panel in axes.flat[: len(found)])
    named = {label: handle for pair in shown for handle, label in zip(*pair, strict=True)}
    figure.legend(
        named.values(), named.keys(), loc="outside lower center", ncols=2, fontsize=8, frameon=False
    )
    figure.suptitle(title, fontsize=9)
    save(figure, path)


def _draw(panel: Any, head: HeadSpectrum) -> None:
    fit, values = head.fit, head.values
    bins = max(12, round(2 * values.size**0.5))
    panel.hist(values, bins, density=True, color="0.8", label="singular values")
    x = np.linspace(fit.floor, fit.edge, 400)
    rest = 1 - len(fit.outliers) / values.size
    line = "-" if fit.accepted else "--"
    panel.plot(x, rest * fit.density(x), line, color=COLOURS[0], label="fitted bulk")
    if fit.outliers:
        places = [outlier.value for outlier in fit.outliers]
        style = {"color": COLOURS[1], "ms": 5, "clip_on": False, "label": "outliers"}
        panel.plot(places, [0.0] * len(places), "^", **style)
    note = "" if fit.accepted else ", no fit"
    panel.set_title(f"layer {head.layer}, head {head.head}{note}", fontsize=8)
    panel.set_ylim(bottom=0)
    panel.tick_params(labelsize=7)
