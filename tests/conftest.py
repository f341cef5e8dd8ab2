import mpmath
import pytest
from hypothesis import HealthCheck, settings

from derive import MarchenkoPastur, Problem

settings.register_profile(
    "onehead",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("onehead")


@pytest.fixture(autouse=True)
def _global_precision_stays():
    """Nothing may touch the global mpmath context."""
    before = mpmath.mp.prec
    yield
    assert mpmath.mp.prec == before


@pytest.fixture
def reference_problem():
    """The linear problem of THEORY.md "Checked"."""
    return Problem(MarchenkoPastur("1/2"), alpha="3/10", lam="1/5", noise="1/10")
