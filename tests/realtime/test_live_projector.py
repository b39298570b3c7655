"""The live wire's way out: the sound, the words and their times, and nothing of turns."""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from session.config import AudioEncoding, AudioFormat, SessionLimits
from session.echoed import EchoedPatch
from session.errors import IllegalNow
from session.events import (
    ErrorRaised,
    Event,
    ResponseFinished,
    SessionClosed,
    SessionCreated,
    SessionExpired,
    SessionUpdated,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.ids import ItemId, ResponseId, SessionId
from session.item_events import (
    InputTranscribed,
)
from session.model_profile import ModelProfile
from session.realtime.dialects.live import KEPT_UTTERANCES, NEVER_UNIX_S, LiveProjector
from session.realtime.live.session_config import live_defaults
from session.realtime.opening import Opening
from session.snapshot import SessionSnapshot
from session.socket_events import SessionExpiring
from session.stream_events import ContextAccepted, InputCounted, InputMuteChanged
from session.stream_stimuli import ContextUse
from tests.realtime.samples import (
    CANCELLED,
    DELTA,
    FENCE,
    FINISHED,
    LAST_DELTA,
    SAMPLES,
    SNAPSHOT,
    STREAM_SAMPLES,
    facts,
)
from tests.support.openai_types import live_faults

CONFIG = live_defaults("test-model", ModelProfile())
NEXT_ID = ResponseId("resp_2")
LIVE_SNAPSHOT = replace(SNAPSHOT, config=CONFIG)
HIDDEN = {
    "SessionCreated", "SessionResumed", "SessionReplaced", "ResyncRequired", "HeartbeatAnswered",
    "UserSpeechStarted", "UserSpeechStopped", "InputItemCommitted", "InputTimedOut",
    "InputBufferCleared", "ItemAdded", "ItemDone", "ItemShown", "ItemRemoved", "ItemCut",
    "ResponseStarted", "AnswerItemOpened", "FunctionCalled", "SpeakDecided", "ResponseFinished",
    "ListenDecided", "OutputBufferCleared", "PlaybackAdvanced", "OverlapDecided", "TurnMoved",
    "InputCounted",
}  # fmt: skip


def as_sound(pcm: bytes, audio_format: AudioFormat) -> bytes:
    del audio_format
    return pcm


class Line:
    """A projector, and what it has sent; every frame is fit for the strictest client."""

    def __init__(self, snapshot: SessionSnapshot = LIVE_SNAPSHOT, **limits: Any) -> None:
        known = replace(facts(), limits=SessionLimits(**limits))
        opening = Opening(SessionId("sess_1"), began_unix_s=1_000_000)
        self.projector = LiveProjector(facts=known, encode=as_sound, opening=opening)
        self._ids = 0
        self.opening = self.send(SessionCreated(snapshot), SessionUpdated(snapshot, "s-1"))

    def send(self, *events: Event) -> list[dict[str, Any]]:
        sent = []
        for event in events:
            for wire_event in self.projector.project(event):
                self._ids += 1
                assert not wire_event.is_journaled
                text = wire_event.to_text(f"event_{self._ids}")
                assert live_faults(text) == []
                sent.append(json.loads(text))
        return sent

    def words(self, *events: Event) -> list[tuple[str, int, int]]:
        return timed(self.send(*events))


def timed(sent: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(e["delta"], e["start_ms"], e["end_ms"]) for e in sent if "transcript" in e["type"]]


def without(event: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


# --- the session --------------------------------------------------------------------------------


def test_the_start_is_answered_once_with_the_session_as_it_is() -> None:
    [started] = Line(max_session_s=3600).opening
    assert started == {
        "type": "session.started",
        "event_id": "event_1",
        "client_event_id": "s-1",
        "session": {
            "id": "sess_1",
            "expires_at": 1_003_600,
            "model": "test-model",
            "status": "active",
            "audio": {"format": {"type": "audio/pcm", "rate": 24_000}, "output": {}},
            "store": False,
        },
    }


def test_what_was_said_at_the_start_is_said_back() -> None:
    echoed = EchoedPatch((("delegation", '{"type":"client"}'), ("safety_identifier", '"u"')))
    config = replace(
        CONFIG,
        instructions="Be brief.",
        voice="marin",
        output_format=AudioFormat(AudioEncoding.G711_ULAW, 8_000),
        echoed=echoed.resolve(()),
    )
    [started] = Line(replace(SNAPSHOT, config=config)).opening
    session = started["session"]
    assert session["instructions"] == "Be brief."
    assert session["audio"] == {
        "format": {"type": "audio/pcmu", "rate": 8_000}, "output": {"voice": "marin"},
    }  # fmt: skip
    assert session["delegation"] == {"type": "client"}
    assert session["safety_identifier"] == "u"


def test_a_session_without_an_end_expires_at_the_end_of_time() -> None:
    [started] = Line(max_session_s=None).opening
    assert started["session"]["expires_at"] == NEVER_UNIX_S


def test_an_update_is_answered_with_the_instructions_of_the_start() -> None:
    line = Line(replace(SNAPSHOT, config=replace(CONFIG, instructions="Be brief.")))
    changed = replace(
        CONFIG, instructions="Be brief.\n\nSpeak French.", echoed=(("triggers", "[]"),)
    )
    [updated] = line.send(SessionUpdated(replace(SNAPSHOT, config=changed), "u-1"))
    assert updated["type"] == "session.updated"
    assert updated["client_event_id"] == "u-1"
    assert updated["session"]["triggers"] == []
    assert updated["session"]["instructions"] == "Be brief."
    [closed] = line.send(SessionClosed(FENCE, "client_close"))
    assert closed["session"] == updated["session"]


@pytest.mark.parametrize(
    ("event", "reason", "info"),
    [
        (SessionClosed(FENCE, "client_close", "bye"), "close_requested", None),
        (SessionClosed(FENCE, "server_shutdown"), "connection_lost", "server_shutdown"),
        (SessionClosed(FENCE, "disconnect"), "connection_lost", "disconnect"),
        (SessionExpired(FENCE, "max_session_duration"), "expired", "max_session_duration"),
        (SessionExpired(FENCE, "idle_ttl_expired"), "expired", "idle_ttl_expired"),
        (SessionExpired(FENCE, "stage0_lost"), "connection_lost", "stage0_lost"),
        (SessionExpired(FENCE, "slow_reader"), "connection_lost", "slow_reader"),
    ],
)
def test_every_end_is_a_session_closed(event: Event, reason: str, info: str | None) -> None:
    line = Line()
    line.send(InputCounted(3_200))
    sent = line.send(event)
    assert [e["code"] for e in sent if e["type"] == "info"] == ([info] if info else [])
    closed = sent[-1]
    assert closed["type"] == "session.closed"
    assert closed["reason"] == reason
    assert closed["usage"] == {"seconds": 4}
    assert closed["session"]["id"] == "sess_1"
    assert closed.get("client_event_id") == ("bye" if reason == "close_requested" else None)


def test_usage_is_told_with_every_ten_seconds_of_input() -> None:
    line = Line()
    sent = line.send(*[InputCounted(ms) for ms in (200, 9_800, 10_000, 10_200, 19_800, 31_000)])
    assert [(e["type"], e["usage"]) for e in sent] == [
        ("session.usage.updated", {"seconds": 10}),
        ("session.usage.updated", {"seconds": 31}),
    ]


# --- words and sound ----------------------------------------------------------------------------


def test_sound_has_no_id_and_no_times() -> None:
    sent = Line().send(DELTA)
    assert sent[0] == {
        "type": "session.output_audio.delta",
        "delta": base64.b64encode(DELTA.pcm).decode(),
    }


def test_words_of_the_model_lie_where_they_are_played() -> None:
    line = Line()
    line.send(InputCounted(3_000))
    assert line.words(DELTA) == [("Hello ", 3_000, 3_200)]
    assert line.words(LAST_DELTA) == [("there.", 3_000, 3_200)]
    line.send(FINISHED, InputCounted(3_200))
    second = replace(DELTA, response_id=NEXT_ID, audio_ms=1_000, pcm=bytes(48_000))
    assert line.words(second) == [(" Hello ", 3_200, 4_200)]
    # Made faster than it is played: what comes next begins where that ends.
    assert line.words(replace(second, audio_ms=2_000)) == [("Hello ", 4_200, 5_200)]


def test_times_are_whole_frames_around_the_sound() -> None:
    line = Line()
    half = replace(DELTA, pcm=bytes(48 * 300), audio_ms=300)
    assert line.words(half) == [("Hello ", 0, 400)]
    assert line.words(replace(half, audio_ms=600)) == [("Hello ", 200, 600)]


def test_what_was_cut_off_takes_no_time() -> None:
    line = Line()
    line.send(InputCounted(1_000), replace(DELTA, pcm=bytes(480_000), audio_ms=10_000))
    line.send(InputCounted(2_000), CANCELLED, InputCounted(2_400))
    assert line.words(replace(DELTA, response_id=NEXT_ID)) == [(" Hello ", 2_400, 2_600)]


def test_words_of_the_user_lie_where_they_were_said() -> None:
    line = Line()
    item = ItemId("item_9")
    line.send(UserSpeechStarted(1_040, item), UserSpeechStopped(2_860, item), InputCounted(4_000))
    heard = line.send(InputTranscribed(item, "How warm is it?", 1_820))
    assert timed(heard) == [("How warm is it?", 1_000, 3_000)]
    assert heard[0]["type"] == "session.input_transcript.delta"


def test_utterances_are_joined_with_a_space() -> None:
    line = Line()
    sent = line.send(*[InputTranscribed(ItemId(f"i{n}"), f"word {n}", 200) for n in range(3)])
    assert "".join(e["delta"] for e in sent) == "word 0 word 1 word 2"


def test_words_of_which_nobody_heard_the_beginning_end_now() -> None:
    line = Line()
    line.send(InputCounted(5_000))
    assert line.words(InputTranscribed(ItemId("x"), "Well.", 800)) == [("Well.", 4_200, 5_000)]


def test_utterances_without_words_are_forgotten() -> None:
    line = Line()
    for n in range(KEPT_UTTERANCES + 1):
        line.send(UserSpeechStarted(n, ItemId(f"item_{n}")))
    line.send(InputCounted(9_000))
    oldest, newest = ItemId("item_0"), ItemId(f"item_{KEPT_UTTERANCES}")
    assert line.words(InputTranscribed(oldest, "a", 0)) == [("a", 9_000, 9_000)]
    assert line.words(InputTranscribed(newest, "b", 0)) == [(" b", 0, 9_000)]


def test_nothing_is_said_of_words_that_are_none() -> None:
    line = Line()
    assert line.words(InputTranscribed(ItemId("x"), "", 800)) == []
    sent = line.send(replace(DELTA, transcript=""))
    assert [e["type"] for e in sent] == ["session.output_audio.delta"]


def test_words_without_sound_take_no_time() -> None:
    line = Line()
    sent = line.send(replace(DELTA, pcm=b"", audio_ms=0))
    assert timed(sent) == [("Hello ", 0, 0)]
    assert len(sent) == 1


def test_a_long_chunk_is_cut_into_frames_that_every_client_takes() -> None:
    sound = bytes(range(256)) * 4_000
    sent = Line().send(replace(DELTA, pcm=sound))
    pieces = [base64.b64decode(e["delta"]) for e in sent if e["type"].endswith("audio.delta")]
    assert b"".join(pieces) == sound
    assert len(pieces) == 5


def test_the_encoder_is_asked_for_its_rest_at_the_end_of_a_turn() -> None:
    asked: list[bytes] = []

    def encode(pcm: bytes, audio_format: AudioFormat) -> bytes:
        assert audio_format == CONFIG.output_format
        asked.append(pcm)
        return b"rest"

    opening = Opening(SessionId("sess_1"), began_unix_s=1)
    projector = LiveProjector(facts=facts(), encode=encode, opening=opening)
    assert projector.project(replace(DELTA, pcm=b"", transcript="")) == []
    [sound] = projector.project(replace(LAST_DELTA, pcm=b"", transcript=""))
    assert asked == [b""]
    assert json.loads(sound.to_text("e"))["delta"] == base64.b64encode(b"rest").decode()


# --- notices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", list(ContextUse))
def test_a_text_for_the_model_is_placed_on_the_timeline(use: ContextUse) -> None:
    line = Line()
    line.send(InputCounted(1_400))
    [accepted] = line.send(ContextAccepted(use, "c-1"))
    assert without(accepted, "event_id") == {
        "type": f"session.{use.value}.appended",
        "client_event_id": "c-1",
        "start_ms": 1_400,
        "end_ms": 1_400,
    }


@pytest.mark.parametrize(("is_muted", "name"), [(True, "muted"), (False, "unmuted")])
def test_a_mute_is_answered(is_muted: bool, name: str) -> None:
    [answer] = Line().send(InputMuteChanged(is_muted, "m"))
    assert without(answer, "event_id") == {
        "type": f"session.input_audio.{name}", "client_event_id": "m",
    }  # fmt: skip


def test_an_error_names_the_clients_event() -> None:
    error = IllegalNow("not now", code="delegation_not_found", param="delegation_id")
    [told] = Line().send(ErrorRaised(error, "c-7"))
    assert told["client_event_id"] == "c-7"
    assert told["error"] == {
        "type": "invalid_request_error",
        "code": "delegation_not_found",
        "message": "not now",
        "param": "delegation_id",
        "client_event_id": "c-7",
    }


def test_an_error_that_nobody_asked_for_names_nothing() -> None:
    [told] = Line().send(ErrorRaised(IllegalNow("not now")))
    assert told["error"].keys() == {"type", "code", "message"}


def test_the_end_of_a_session_is_announced() -> None:
    [told] = Line().send(SessionExpiring(FENCE, "max_session_duration", 60_000))
    assert (told["type"], told["code"]) == ("info", "session_expiring")
    assert "60 s" in told["message"]


@pytest.mark.parametrize(
    "sample", SAMPLES + STREAM_SAMPLES, ids=lambda sample: type(sample).__name__
)
def test_only_what_the_wire_has_a_name_for_is_shown(sample: Event) -> None:
    is_shown = bool(Line().send(sample))
    assert is_shown is (type(sample).__name__ not in HIDDEN)


def test_before_there_is_a_session_errors_are_told() -> None:
    opening = Opening(SessionId("sess_1"), began_unix_s=1, is_lobby=True)
    projector = LiveProjector(facts=facts(), encode=as_sound, opening=opening)
    [error] = projector.project(ErrorRaised(IllegalNow("first session.start"), "c"))
    assert live_faults(error.to_text("event_1")) == []
    [info, closed] = projector.project(SessionClosed(FENCE, "disconnect"))
    assert live_faults(info.to_text("event_2")) == live_faults(closed.to_text("event_3")) == []


def test_the_end_of_an_answer_says_nothing() -> None:
    assert isinstance(FINISHED, ResponseFinished)
    assert Line().send(FINISHED) == []
