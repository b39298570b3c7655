"""A gateway in its Serve replica refuses what its deploy file should not have said."""

import pytest

from serve_app.gateway.gateway_replica import check_only_one
from serve_app.settings import SettingsError


def test_there_is_one_gateway_whoever_deployed_it() -> None:
    check_only_one(1)
    with pytest.raises(SettingsError, match="num_replicas: must be 1: a session can not move"):
        check_only_one(2)
