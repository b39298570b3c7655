"""Calls that nobody wants any more are let go, also those that never began."""

import pytest
from ray.serve.exceptions import DeploymentUnavailableError, RayServeException

from serve_app.leasing.stage_errors import let_go, stage_errors
from session.errors import StageUnavailable


class Response:
    """A call that raises at its cancellation what it failed of."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do as a DeploymentResponse does."""
        if self.failure is not None:
            raise self.failure
        self.is_cancelled = True


class Unavailable(DeploymentUnavailableError):
    """Without a deployment's id, which the real one wants."""

    def __init__(self) -> None:
        RayServeException.__init__(self)


def test_a_call_that_runs_is_cancelled() -> None:
    response = Response()
    let_go(response)
    assert response.is_cancelled


def test_a_call_that_reached_no_replica_is_nothing_to_let_go() -> None:
    let_go(Response(Unavailable()))


def test_a_fault_of_our_own_is_not_hidden() -> None:
    with pytest.raises(TypeError):
        let_go(Response(TypeError("wrong")))


def test_a_deployment_without_replicas_can_not_be_reached() -> None:
    with pytest.raises(StageUnavailable, match="can not be reached"), stage_errors("stage0"):
        raise Unavailable
