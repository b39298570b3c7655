"""The tree of errors: its base is never raised, and an error crosses a process whole."""

import pickle

import pytest

from session.errors import DuplexError, StageFailed, TooManyOpens


def test_the_base_is_not_an_error_of_its_own() -> None:
    with pytest.raises(TypeError):
        DuplexError("something")


def test_code_and_param_cross_a_process() -> None:
    sent = StageFailed("no", code="poison", param="unit")
    came = pickle.loads(pickle.dumps(sent))
    assert type(came) is StageFailed
    assert (came.message, came.wire_code, came.param) == ("no", "poison", "unit")


def test_who_is_over_its_quota_may_be_told_when_to_try_again() -> None:
    error = TooManyOpens("wait", retry_after_s=3)
    assert (error.wire_type, error.wire_code) == ("rate_limit_error", "rate_limit_exceeded")
    assert (error.retryable, error.retry_after_s) == (True, 3)
    assert pickle.loads(pickle.dumps(error)).message == "wait"
