"""Every event of the kernel reaches the wire in the shape that the wire names."""

import json
from dataclasses import replace
from typing import get_args

import pytest

from session.config import (
    AudioEncoding,
    AudioFormat,
    ConfigPatch,
    SessionLimits,
    TurnDetection,
    default_config,
)
from session.echoed import EchoedPatch
from session.errors import AdmissionRefused, IllegalNow, LocalProtocolError, StageTimeout
from session.events import (
    ErrorRaised,
    Event,
    InputItemCommitted,
    ListenDecided,
    PlaybackAdvanced,
    SessionCreated,
)
from session.ids import ItemId, ResponseId
from session.item_events import (
    ItemAdded,
    ItemShown,
    ItemView,
)
from session.model_profile import ModelProfile
from session.realtime import server_events, session_events
from session.realtime.session_events import ServerEvent
from session.snapshot import Playback, SessionSnapshot
from tests.realtime.samples import (
    ANSWER,
    DELTA,
    FENCE,
    FINISHED,
    ITEM,
    RESPONSE,
    SAMPLES,
    SNAPSHOT,
    STARTED,
    STREAM_SAMPLES,
    USER_ITEM,
    USER_SPEECH,
    facts,
    project,
    projector,
    texts,
    types,
)

EXPECTED_TYPES = {
    "SessionCreated": ["session.created"],
    "SessionResumed": ["session.resumed"],
    "SessionReplaced": ["session.replaced"],
    "ResyncRequired": ["session.resync_required"],
    "SessionExpiring": ["session.expiring"],
    "SessionUpdated": ["session.updated"],
    "SessionClosed": ["session.closed"],
    "SessionExpired": ["session.expired"],
    "HeartbeatAnswered": ["session.heartbeat_ack"],
    "UserSpeechStarted": ["input_audio_buffer.speech_started"],
    "UserSpeechStopped": ["input_audio_buffer.speech_stopped"],
    "InputItemCommitted": ["input_audio_buffer.committed"],
    "InputTimedOut": ["input_audio_buffer.timeout_triggered"],
    "InputBufferCleared": ["input_audio_buffer.cleared"],
    "ItemAdded": ["conversation.item.added", "conversation.item.created"],
    "ItemDone": ["conversation.item.done"],
    "InputTranscribed": ["conversation.item.input_audio_transcription.completed"],
    "ItemShown": ["conversation.item.retrieved"],
    "ItemRemoved": ["conversation.item.deleted"],
    "ItemCut": ["conversation.item.truncated"],
    "SpeakDecided": ["response.speak"],
    "ListenDecided": ["response.listen"],
    "OutputBufferCleared": ["output_audio_buffer.cleared"],
    "PlaybackAdvanced": ["playback.acknowledged"],
    "OverlapDecided": ["overlap.decision"],
    "TurnMoved": ["turn.event"],
    "ErrorRaised": ["error"],
}


def models() -> dict[str, type[ServerEvent]]:
    """Return the models of server events by the type they write."""
    kinds = [
        kind
        for kind in (vars(server_events) | vars(session_events)).values()
        if isinstance(kind, type) and issubclass(kind, ServerEvent)
    ]
    named = {kind.model_fields["type"].default: kind for kind in kinds}
    return {name: kind for name, kind in named.items() if isinstance(name, str)}


def test_there_is_a_sample_of_every_event() -> None:
    assert {type(sample) for sample in SAMPLES + STREAM_SAMPLES} == set(get_args(Event))


@pytest.mark.parametrize("sample", STREAM_SAMPLES, ids=lambda sample: type(sample).__name__)
def test_what_this_dialect_does_not_lead_to_is_not_shown(sample: Event) -> None:
    assert projector().project(sample) == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_every_event_is_projected_and_reads_back(sample: Event) -> None:
    by = projector()
    sent = texts(by, sample)
    assert sent
    for text in sent:
        assert text.encode()
        read = json.loads(text)
        model = models()[read["type"]].model_validate_json(text)
        assert json.loads(model.to_text(read["event_id"])) == read
    expected = EXPECTED_TYPES.get(type(sample).__name__)
    if expected is not None:
        assert [json.loads(text)["type"] for text in sent] == expected


def test_no_two_server_events_share_an_id() -> None:
    sent = project(*SAMPLES)
    ids = [each["event_id"] for each in sent]
    assert all(ids)
    assert len(set(ids)) == len(ids) > len(SAMPLES)


def test_every_model_can_be_sent() -> None:
    written = types(
        replace(STARTED, output_modalities=("text",)),
        replace(DELTA, is_text_only=True),
        replace(FINISHED, output_modalities=("text",)),
    )
    assert set(types(*SAMPLES)) | set(written) == models().keys()


# --- session ---------------------------------------------------------------------------------


def test_the_session_object_shows_the_settings_that_hold() -> None:
    config = replace(
        default_config("test-model", ModelProfile()),
        output_modalities=("audio",),
        instructions="be brief",
        input_format=AudioFormat(AudioEncoding.G711_ULAW, 8_000),
        output_format=AudioFormat(AudioEncoding.WAV, 24_000),
        turn_detection=TurnDetection(threshold=0.7),
        max_output_tokens=7,
    )
    snapshot = SessionSnapshot(
        FENCE.next_epoch(),
        "open",
        "idle",
        config,
        Playback(4, 3, 2, 1),
        active_response_id=RESPONSE,
    )
    shown = project(SessionCreated(snapshot))[0]["session"]
    assert shown["type"] == "realtime"
    assert (shown["id"], shown["epoch"], shown["turn_id"]) == ("sess_1", 1, 1)
    assert (shown["active_response_id"], shown["active_response_turn_id"]) == (RESPONSE, 1)
    assert shown["modalities"] == shown["output_modalities"] == ["audio"]
    assert (shown["input_audio_format"], shown["output_audio_format"]) == ("g711_ulaw", "wav")
    assert shown["audio"]["input"] == {"format": "g711_ulaw", "sample_rate_hz": 8_000}
    assert shown["turn_detection"]["threshold"] == 0.7
    assert (shown["instructions"], shown["max_tokens"]) == ("be brief", 7)
    assert shown["playback"] == {
        "generated_ms": 4, "sent_ms": 3, "played_ms": 2, "committed_ms": 1
    }  # fmt: skip


def test_echoed_fields_stand_beside_the_servers_and_never_over_them() -> None:
    echo = EchoedPatch(
        (
            ("tracing", '"auto"'),
            ("capabilities", '"mine"'),
            ("state", '"mine"'),
            ("object", '"mine"'),
            ("audio.input.noise_reduction", '{"type":"near_field"}'),
            ("audio.input.format", '"mine"'),
        )
    )
    config = ConfigPatch((("echoed", echo),)).apply_to(SNAPSHOT.config)
    shown = project(SessionCreated(replace(SNAPSHOT, config=config)))[0]["session"]
    assert shown["tracing"] == "auto"
    assert shown["state"] == "open"
    assert shown["capabilities"]["configured_limit"] == 4
    assert shown["audio"]["input"] == {
        "format": "pcm16",
        "sample_rate_hz": 16_000,
        "noise_reduction": {"type": "near_field"},
    }


@pytest.mark.parametrize(("max_sessions", "is_multi"), [(1, False), (2, True)])
def test_capabilities_tell_how_many_sessions_there_are(max_sessions: int, is_multi: bool) -> None:
    told = facts(max_sessions=max_sessions).capabilities().model_dump()
    assert told["configured_limit"] == told["limits"]["max_sessions"] == max_sessions
    assert told["supports_multi_session"] is told["advertised_multi_session"] is is_multi
    assert told["supports_multi_session_same_replica"] is is_multi
    assert told["session_admission_mode"] == "engine_managed"


def test_capabilities_follow_the_model() -> None:
    plain = facts(profile=ModelProfile()).capabilities().model_dump()
    able = (
        facts(
            profile=ModelProfile(
                unit_ms=80,
                default_server_vad=True,
                text_input=True,
                video_input=True,
                tools=True,
                input_transcription=True,
            )
        )
        .capabilities()
        .model_dump()
    )
    assert {name: able[name] for name in able if able[name] != plain[name]} == {
        "implementation_level": "cascade",
        "supports_model_native_turn_policy": False,
        "supports_image_input": True,
        "supports_text_only_turn": True,
        "supports_tools": True,
        "supports_input_transcription": True,
        "optional_input_modalities": ("text", "video"),
        "signal_sources": ("client_event", "server_policy"),
        "chunk_period_ms": 80,
    }


def test_resume_is_claimed_only_where_it_is_there() -> None:
    assert facts().capabilities().supports_session_resume is False
    assert replace(facts(), supports_resume=True).capabilities().supports_session_resume is True
    resumable = replace(facts(), has_resumable_requests=True).capabilities()
    assert resumable.supports_core_resumable_request
    assert resumable.requires_model_runner_kv


def test_all_limits_are_told() -> None:
    told = facts().capabilities().model_dump()["limits"]
    assert told.keys() == set(SessionLimits.__slots__)


# --- items -----------------------------------------------------------------------------------


def item(view: ItemView) -> dict[str, object]:
    shown: dict[str, object] = project(ItemShown(view))[0]["item"]
    return shown


def test_items_have_the_part_that_fits_their_role() -> None:
    text = ItemView(USER_ITEM, "system", "completed", "be brief", is_audio=False)
    assert item(text)["content"] == [{"type": "input_text", "text": "be brief"}]
    assert item(USER_SPEECH)["content"] == [{"type": "input_audio", "transcript": ""}]
    silence = replace(USER_SPEECH, is_speech=False)
    assert item(silence)["content"] == [
        {"type": "input_audio", "transcript": "", "is_speech": False}
    ]
    written = replace(ANSWER, is_audio=False)
    assert item(written)["content"] == [{"type": "output_text", "text": "Hello there."}]


def test_the_output_of_a_function_call_is_an_item_of_its_own_kind() -> None:
    output = ItemView(USER_ITEM, "tool", "completed", "{}", is_audio=False, call_id="call_1")
    assert item(output) == {
        "id": USER_ITEM,
        "object": "realtime.item",
        "type": "function_call_output",
        "status": "completed",
        "call_id": "call_1",
        "output": "{}",
    }


def test_both_events_of_a_new_item_say_the_same() -> None:
    added, created = project(ItemAdded(USER_SPEECH, ItemId("item_0")))
    assert added["previous_item_id"] == "item_0"
    del added["type"], created["type"], added["event_id"], created["event_id"]
    assert added == created


def test_an_enormous_text_is_cut_and_a_long_one_is_not() -> None:
    long = "é" * 190_000
    assert item(replace(USER_SPEECH, text=long))["content"] == [
        {"type": "input_audio", "transcript": long}
    ]
    enormous = project(ItemShown(replace(USER_SPEECH, text="é" * 10_000_000)))[0]
    assert len(json.dumps(enormous, ensure_ascii=False).encode()) < 512 * 1024


# --- the rest --------------------------------------------------------------------------------


def test_a_commit_shows_only_the_flags_that_hold() -> None:
    plain = InputItemCommitted(FENCE, USER_ITEM, ItemId("item_0"), 3)
    event = project(plain)[0]["event"]
    flags = {
        "overlap_deferred", "response_create_deferred", "empty", "is_speech", "no_response",
        "overlap_ack",
    }  # fmt: skip
    assert not flags & event.keys()
    assert (event["history_len"], event["realtime_item_id"]) == (3, USER_ITEM)
    every = replace(
        plain,
        is_empty=True,
        is_speech=False,
        expects_no_response=True,
        is_overlap_ack=True,
        is_deferred=True,
    )
    shown = project(every)[0]["event"]
    assert {name: shown[name] for name in flags} == {
        "overlap_deferred": True,
        "response_create_deferred": True,
        "empty": True,
        "is_speech": False,
        "no_response": True,
        "overlap_ack": True,
    }


def test_a_listen_names_an_answer_only_if_it_ends_one() -> None:
    alone = project(ListenDecided(FENCE, "model_listen", is_model_listen=True))[0]
    assert "response_id" not in alone
    assert "id" not in alone["response"]
    ending = project(ListenDecided(FENCE, "silence_or_noise", False, ResponseId("resp_9")))[0]
    assert ending["response_id"] == ending["response"]["id"] == "resp_9"
    assert ending["response"]["metadata"] == {
        "type": "response.listen",
        "reason": "silence_or_noise",
        "model_listen": False,
    }


def test_an_acknowledgement_tells_all_cursors() -> None:
    event = PlaybackAdvanced(FENCE, RESPONSE, ITEM, Playback(4, 3, 2, 1), False, is_truncated=True)
    told = project(event)[0]["event"]
    assert (told["played_ms"], told["committed_ms"]) == (2, 1)
    assert (told["truncate"], told["history_committed"]) == (True, False)
    assert told["response_id"] == RESPONSE


def test_an_error_tells_what_is_known_and_nothing_else() -> None:
    def told(raised: ErrorRaised) -> dict[str, object]:
        error: dict[str, object] = project(raised)[0]["error"]
        return error

    assert told(ErrorRaised(LocalProtocolError("broken"))) == {
        "type": "server_error",
        "code": "internal_error",
        "message": "broken",
    }
    full = IllegalNow("no item", code="item_not_found", param="item_id")
    assert told(ErrorRaised(full, "c-1")) == {
        "type": "invalid_request_error",
        "code": "item_not_found",
        "message": "no item",
        "event_id": "c-1",
        "param": "item_id",
    }
    assert told(ErrorRaised(AdmissionRefused("full")))["retryable"] is True
    assert told(ErrorRaised(StageTimeout("late")))["type"] == "server_error"
    assert len(str(told(ErrorRaised(IllegalNow("x" * 99_999)))["message"])) == 2_000
    assert len(str(told(ErrorRaised(IllegalNow("no", param="x" * 99_999)))["param"])) == 512


def test_a_commit_names_the_turn_that_its_item_has_reserved() -> None:
    item = InputItemCommitted(FENCE, USER_ITEM, None, 1)
    reserved = replace(item, turn=FENCE.turn + 7)
    turns = [sent["event"]["turn_id"] for sent in project(item, reserved)]
    assert turns == [FENCE.turn, FENCE.turn + 7]
