"""The kernel's own events on the wire: each has a name, and nothing of it is lost."""

import json
from dataclasses import fields, replace
from typing import Any, get_args

import pytest

from session.errors import IllegalNow
from session.events import ErrorRaised, Event, SessionUpdated, SpeechDelta
from session.realtime.dialects.internal import NAMES, InternalProjector
from tests.realtime.samples import DELTA, SAMPLES, SNAPSHOT, STREAM_SAMPLES


def written(event: Event, seq: int | None = 7) -> dict[str, Any]:
    [one] = InternalProjector().project(event)
    read: dict[str, Any] = json.loads(one.to_text("event_1", seq if one.is_journaled else None))
    return read


def test_every_event_of_the_kernel_has_a_name_of_its_own() -> None:
    assert NAMES.keys() == set(get_args(Event))
    assert len(set(NAMES.values())) == len(NAMES)


@pytest.mark.parametrize(
    "sample", SAMPLES + STREAM_SAMPLES, ids=lambda sample: type(sample).__name__
)
def test_every_field_is_there(sample: Event) -> None:
    read = written(sample)
    assert read["type"] == NAMES[type(sample)]
    assert read["event_id"] == "event_1"
    assert {field.name for field in fields(sample)} <= read.keys()


def test_audio_is_base64_and_values_are_plain() -> None:
    read = written(DELTA)
    assert len(read["pcm"]) == 6_400
    assert read["output_format"] == {"encoding": "pcm16", "rate_hz": 24_000}
    assert read["fence"]["epoch"] == DELTA.fence.epoch
    assert isinstance(DELTA, SpeechDelta)


def test_what_concerns_the_socket_alone_has_no_number() -> None:
    named = {type(sample).__name__: written(sample) for sample in SAMPLES}
    plain = {name for name, read in named.items() if "server_event_seq" not in read}
    assert plain == {"SessionCreated", "SessionResumed", "SessionReplaced", "ResyncRequired"}


def test_an_error_names_the_clients_event_inside() -> None:
    read = written(ErrorRaised(IllegalNow("not now", code="illegal_now"), "c-1"))
    assert read["event_id"] == "event_1"
    assert read["error"]["event_id"] == "c-1"
    assert read["error"]["code"] == "illegal_now"


def test_the_recording_of_a_voice_is_not_sent_back() -> None:
    config = replace(SNAPSHOT.config, ref_audio=b"RIFF" * 1000)
    read = written(SessionUpdated(replace(SNAPSHOT, config=config)))
    assert read["session"]["config"]["ref_audio"] == ""
