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
        (
            {"auto_response": True, "has_detector": True},
            ("listen", "server_vad_utterance_active"),
        ),
        ({"auto_response": True, "is_speech": False}, ("listen", "auto_response_continuous")),
        ({"has_detector": True, "overlap_ms": 5000}, ("listen", "server_vad_utterance_active")),
        ({"text_hint": "Go on."}, ("listen", "short_ack_transcript")),
        ({"text_hint": " 嗯。"}, ("listen", "short_ack_transcript")),
        ({"text_hint": "OK!", "overlap_ms": 5000}, ("listen", "short_ack_transcript")),
        ({"text_hint": "OK but wait"}, ("listen", "short_ack")),
        ({"text_hint": "ok", "auto_response": True}, ("barge_in", "barge_in_on_speech")),
        ({"text_hint": "ok", "is_speech": False}, ("drop", "silence_or_noise")),
        ({"is_speech": False, "has_frames": True}, ("listen", "vision_follow")),
        ({"overlap_ms": 700}, ("listen", "short_ack")),
        ({"overlap_ms": 701}, ("listen", "accumulating_overlap_speech")),
        ({"overlap_ms": 1199}, ("listen", "accumulating_overlap_speech")),
    ],
)
def test_ruling(changes: dict[str, object], expected: tuple[str, str] | None) -> None:
    ruling = rule(replace(FACTS, **changes))  # type: ignore[arg-type]  # a table of fields
    assert (None if ruling is None else (ruling.action.value, ruling.reason)) == expected


@pytest.mark.parametrize(
    ("changes", "keeps"),
    [
        ({}, True),
        ({"text_hint": "mhm"}, False),
        ({"is_speech": False}, False),
        # Voice detection needs what came just before an onset.
        ({"is_speech": False, "has_detector": True}, True),
        ({"client_action": "drop"}, False),
        ({"client_action": "drop", "has_detector": True}, False),
        ({"client_action": "listen"}, True),
        ({"overlap_ms": 1200}, True),
    ],
)
def test_what_is_kept_for_the_model(changes: dict[str, object], keeps: bool) -> None:
    ruling = rule(replace(FACTS, **changes))  # type: ignore[arg-type]  # a table of fields
    assert ruling is not None
    assert ruling.keeps_audio is keeps


def test_actions_are_the_words_of_the_wire() -> None:
    assert {action.value for action in OverlapAction} == {"barge_in", "listen", "drop"}
