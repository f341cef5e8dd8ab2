"""Modes as numbers: what `derive.modes` says at given tau."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from derive import symbols as s
from derive.generate import compile_function
from derive.modes import mode, strength

__all__ = ["ModeValues", "mode_values"]


class ModeValues(NamedTuple):
    """Values of the expressions of `derive.modes.Mode` of these names."""

    position: Any
    overlap: Any


@cache
def _function() -> Any:
    outputs = {name: getattr(mode(), name) for name in ModeValues._fields}
    return compile_function("mode", (strength, s.tau2), outputs, "numpy", np)


def mode_values(strengths: Any, tau: float) -> ModeValues:
    """Of one strength, or of an array of them."""
    return ModeValues(*_function()(strengths, tau**2))
