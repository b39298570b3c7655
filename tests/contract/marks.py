"""Transcripts as parameters of a test, with what is known to be wrong marked."""

import pytest
from _pytest.mark import ParameterSet

from tests.contract.transcript import Transcript, every_transcript


def everywhere() -> list[ParameterSet]:
    """Return all transcripts."""
    return [_parameter(each) for each in every_transcript()]


def on_sockets() -> list[ParameterSet]:
    """Return those that a service with real sockets can play, grouped by their limits."""
    fitting = [each for each in every_transcript() if each.is_for_sockets]
    return [_parameter(each) for each in sorted(fitting, key=lambda each: str(each.limits))]


def _parameter(transcript: Transcript) -> ParameterSet:
    reason = transcript.header.get("xfail")
    marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
    return pytest.param(transcript, id=transcript.name, marks=marks)
