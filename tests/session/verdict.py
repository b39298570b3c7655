"""A pytest plugin for the mutants: the first failed test ends the run with a verdict of its own.

Nothing is reported. Early Python 3.11 releases can lose a frame's position, over which pytest's
report of a failed test breaks with an internal error, and that is no verdict.
"""

import os
import sys
from collections.abc import Generator
from typing import Final

import pytest

NOTICED: Final = 70
"""Exit status of a run whose tests noticed something; pytest itself uses none above 5."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Leave at once, past every handler, when a test fails."""
    try:
        yield
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - whatever a test fails with
        sys.stdout.write(f"noticed by {item.nodeid}\n")
        sys.stdout.flush()
        os._exit(NOTICED)
