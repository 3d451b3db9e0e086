"""The fixtures of the product's tests, for the regressions that prove fixes of the product."""

from impl.tests.conftest import memory, run_python, store

__all__ = ["memory", "run_python", "store"]
