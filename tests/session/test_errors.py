"""The tree of errors: its base is never raised, and an error crosses a process whole."""

import pickle

import pytest

from session.errors import DuplexError, StageFailed


def test_the_base_is_not_an_error_of_its_own() -> None:
    with pytest.raises(TypeError):
        DuplexError("something")


def test_code_and_param_cross_a_process() -> None:
    sent = StageFailed("no", code="poison", param="unit")
    came = pickle.loads(pickle.dumps(sent))
    assert type(came) is StageFailed
    assert (came.message, came.wire_code, came.param) == ("no", "poison", "unit")
