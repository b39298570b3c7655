"""Time limits by kind of test: a test that starts Ray or loads a model may take longer."""

import pytest

TIMEOUTS_S = {"models": 120, "serve": 180, "browser": 180, "soak": 1800}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each marked test its kind's limit, unless it states one itself."""
    for item in items:
        limits = [limit for marker, limit in TIMEOUTS_S.items() if item.get_closest_marker(marker)]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))
