from dataclasses import replace

import pytest

from session.config import OverlapPolicy
from session.overlap import OverlapAction, OverlapFacts, rule

FACTS = OverlapFacts(
    policy=OverlapPolicy.BARGE_IN_ON_SPEECH,
    auto_response=False,
    is_speech=True,
    had_onset=False,
    has_detector=False,
    interrupts=False,
    duration_ms=200,
    overlap_ms=200,
    short_ack_ms=700,
    barge_in_ms=1200,
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("listen", "short_ack")),
        ({"overlap_ms": 900}, ("listen", "accumulating_overlap_speech")),
        ({"overlap_ms": 1200}, ("barge_in", "long_overlap_speech")),
        ({"is_speech": False}, ("drop", "silence_or_noise")),
        ({"policy": OverlapPolicy.LISTEN_ONLY}, ("listen", "policy_listen_only")),
        ({"client_action": "drop"}, ("drop", "client_overlap_action")),
        ({"force_barge_in": True}, ("barge_in", "client_force_barge_in")),
        ({"force_listen": True}, ("listen", "client_force_listen")),
        (
            {"had_onset": True, "interrupts": True, "has_detector": True},
            ("barge_in", "server_vad_speech_started"),
        ),
        ({"auto_response": True}, ("barge_in", "barge_in_on_speech")),
        ({"auto_response": True, "policy": OverlapPolicy.LISTEN_ONLY}, None),
        ({"auto_response": True, "has_detector": True}, None),
        ({"auto_response": True, "is_speech": False}, None),
    ],
)
def test_ruling(changes: dict[str, object], expected: tuple[str, str] | None) -> None:
    ruling = rule(replace(FACTS, **changes))  # type: ignore[arg-type]  # a table of fields
    assert (None if ruling is None else (ruling.action.value, ruling.reason)) == expected


def test_actions_are_the_words_of_the_wire() -> None:
    assert {action.value for action in OverlapAction} == {"barge_in", "listen", "drop"}
