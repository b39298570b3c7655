"""Stories of committed turns, conversation items, playback and settings."""

from dataclasses import replace

import pytest

from session.config import (
    AnswerSettings,
    AudioEncoding,
    AudioFormat,
    ConfigPatch,
    ResponseOptions,
    SessionLimits,
    TurnDetection,
)
from session.effects import (
    ConfigureStages,
    SubmitUnit,
)
from session.errors import StageFailed
from session.events import (
    ErrorRaised,
    InputBufferCleared,
    InputItemCommitted,
    ListenDecided,
    ResponseFinished,
    ResponseStarted,
    SessionUpdated,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.ids import ItemId
from session.item_events import (
    InputTranscribed,
    ItemAdded,
)
from session.stimuli import (
    BargedIn,
    ConfigureFailed,
    InputCleared,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ItemTruncated,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SessionConfigured,
    SpeechFailed,
    TextAppended,
)
from tests.session.driver import (
    AUTO_VAD,
    PROFILE,
    TURN_MODE,
    UNIT_BYTES,
    Driver,
    names,
    speaking,
)

CREATE = ResponseRequested(ResponseOptions())


# --- turn mode and commit ------------------------------------------------------------------------


def test_turn_mode_waits_for_response_create() -> None:
    d = Driver(TURN_MODE)
    d.append(1500, speech=True)
    effects = d.do(InputCommitted())
    assert names(effects) == ["ItemAdded", "InputItemCommitted", "ItemDone"]
    assert d.asked(SubmitUnit) == []
    effects = d.do(CREATE)
    assert names(effects) == ["ResponseStarted", "SubmitUnit"]
    unit = d.last_unit().unit
    assert unit.closes_input
    assert len(unit.pcm) == 2 * UNIT_BYTES
    d.speak("hi", heard="hello there")
    assert d.said(InputTranscribed)[0].transcript == "hello there"
    d.voice("hi")
    d.voiced()
    assert d.said(ResponseFinished)[0].status == "completed"


def test_commit_then_create_twice_is_one_answer_and_one_error() -> None:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    d.do(InputCommitted())
    d.do(CREATE)
    effects = d.do(CREATE)
    assert [e.error.wire_code for e in d.said(ErrorRaised, effects)] == ["response_already_active"]
    assert len(d.said(ResponseStarted)) == 1


def test_an_empty_commit_is_one_error() -> None:
    d = Driver()
    effects = d.do(InputCommitted(event_id="c1"))
    error = d.said(ErrorRaised, effects)[0]
    assert (error.error.wire_code, error.event_id) == ("input_audio_buffer_empty", "c1")


def test_create_without_input_is_one_error() -> None:
    d = Driver(TURN_MODE)
    effects = d.do(CREATE)
    assert d.said(ErrorRaised, effects)[0].error.wire_code == "response_create_without_input"


def test_an_option_the_model_lacks_is_refused_before_anything_is_created() -> None:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    d.do(InputCommitted())
    d.do(ResponseRequested(ResponseOptions(settings=AnswerSettings(voice="x"))))
    assert d.said(ResponseStarted) == []
    assert d.said(ErrorRaised)[0].error.wire_code == "unsupported_native_response_options"
    d.do(ResponseRequested(ResponseOptions(settings=AnswerSettings(temperature=0.5))))
    assert len(d.said(ResponseStarted)) == 1


def test_a_listening_model_ends_an_answer_that_was_asked_for() -> None:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    d.do(InputCommitted())
    d.do(CREATE)
    effects = d.listen(turn_end=True)
    assert names(effects)[:2] == ["ListenDecided", "ResponseFinished"]
    assert d.said(ListenDecided)[0].response_id == d.said(ResponseFinished)[0].response_id


def test_commit_in_an_auto_session_flushes_the_residue() -> None:
    d = Driver()
    d.append(1300, speech=True)
    d.listen()
    effects = d.do(InputCommitted())
    assert names(effects) == ["ItemAdded", "InputItemCommitted", "ItemDone", "SubmitUnit"]
    assert d.last_unit().unit.closes_input


def test_declared_silence_clears_and_listens() -> None:
    d = Driver(TURN_MODE)
    d.append(500)
    effects = d.do(InputCommitted(is_speech=False))
    assert names(effects) == ["InputItemCommitted", "ListenDecided"]
    assert d.said(InputItemCommitted)[0].expects_no_response
    effects = d.do(InputCommitted())
    assert d.said(ErrorRaised, effects)[0].error.wire_code == "input_audio_buffer_empty"


def turn_mode_speaking() -> Driver:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    d.do(InputCommitted())
    d.do(CREATE)
    d.speak("a long answer")
    d.voice("a long ")
    return d


def test_a_short_overlap_commit_is_an_acknowledgement() -> None:
    d = turn_mode_speaking()
    d.append(500, speech=True)
    d.do(InputCommitted())
    assert d.said(InputItemCommitted)[-1].is_overlap_ack
    d.voice("answer")
    d.voiced()
    assert len(d.said(ResponseStarted)) == 1


def test_a_meaningful_overlap_commit_waits_and_is_promoted() -> None:
    d = turn_mode_speaking()
    d.append(1000, speech=True)
    d.do(InputCommitted())
    assert d.said(InputItemCommitted)[-1].is_deferred
    submitted = len(d.asked(SubmitUnit))
    d.voice("answer")
    d.voiced()
    assert len(d.asked(SubmitUnit)) == submitted + 1
    d.speak("second answer")
    d.voice("second answer")
    first, second = d.said(ResponseStarted)
    assert first.response_id != second.response_id


def test_detection_in_turn_mode_commits_and_creates() -> None:
    d = Driver(replace(TURN_MODE, turn_detection=TurnDetection()))
    d.append(3000, probability=0.0)
    d.append(500, probability=0.98)
    d.append(1000, probability=0.0)
    kinds = names(d.effects)
    assert kinds[-6:] == [
        "UserSpeechStopped",
        "ItemAdded",
        "InputItemCommitted",
        "ItemDone",
        "ResponseStarted",
        "SubmitUnit",
    ]
    # Long silence before the utterance is not part of it.
    assert len(d.last_unit().unit.pcm) < 3 * UNIT_BYTES


def test_clear_drops_what_waits_and_only_that() -> None:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    effects = d.do(InputCleared())
    assert names(effects) == ["InputBufferCleared"]
    d.append(300, speech=True)
    d.do(InputCommitted())
    d.do(CREATE)
    assert len(d.said(InputBufferCleared)) == 1
    assert d.last_unit().unit.pcm.count(0) == UNIT_BYTES


def test_text_makes_a_turn() -> None:
    d = Driver()
    d.do(ItemCreated("user", "what is two plus three"))
    d.do(CREATE)
    unit = d.last_unit().unit
    assert (unit.text, unit.pcm, unit.closes_input) == ("what is two plus three", b"", True)


def test_text_joins_the_open_item() -> None:
    d = Driver(TURN_MODE)
    d.do(TextAppended("hello "))
    d.do(TextAppended("there"))
    d.do(InputCommitted(create_response=True))
    assert d.last_unit().unit.text == "hello there"


def test_a_model_without_text_input_says_so() -> None:
    d = Driver(profile=replace(PROFILE, text_input=False))
    d.do(TextAppended("x"))
    d.do(ItemCreated("user", "x"))
    codes = [e.error.wire_code for e in d.said(ErrorRaised)]
    assert codes == ["native_text_append_unsupported", "text_only_turn_unsupported"]


def test_short_units_flush_an_utterance_at_its_end() -> None:
    d = Driver(AUTO_VAD, profile=replace(PROFILE, accepts_short_units=True))
    d.append(300, probability=0.98)
    assert d.asked(SubmitUnit) == []
    d.append(600, probability=0.0)
    assert len(d.last_unit().unit.pcm) == 900 * 32
    d.listen(heard="hi")
    assert d.said(InputTranscribed)[0].item_id == d.said(UserSpeechStarted)[0].item_id


# --- settings ------------------------------------------------------------------------------------


def warmer() -> SessionConfigured:
    return SessionConfigured(ConfigPatch((("temperature", 0.9),)), "u1")


def test_an_update_waits_for_the_unit_that_is_out() -> None:
    d = Driver()
    d.append(2000)
    d.do(warmer())
    assert d.asked(ConfigureStages) == []
    d.listen()
    assert len(d.asked(ConfigureStages)) == 1
    assert len(d.asked(SubmitUnit)) == 1
    d.configured()
    assert d.last_unit().config_generation == 1
    assert d.said(SessionUpdated)[-1].session.config.temperature == 0.9


def test_a_refused_update_leaves_everything_as_it_was() -> None:
    d = Driver()
    d.do(warmer())
    asked = d.asked(ConfigureStages)[0]
    d.do(ConfigureFailed(asked.fence, asked.generation, StageFailed("no")))
    assert d.said(ErrorRaised)[0].event_id == "u1"
    assert d.session.config.temperature is None
    d.append(1000)
    assert d.last_unit().config_generation == 0


def test_an_update_survives_an_interruption() -> None:
    d = Driver()
    speaking(d)
    d.do(warmer())
    d.do(BargedIn())
    d.append(1000)
    assert len(d.asked(ConfigureStages)) == 2
    d.configured()
    assert d.session.config.temperature == 0.9
    assert d.last_unit().config_generation == 1


def test_what_the_stages_need_not_know_is_changed_at_once() -> None:
    d = Driver()
    g711 = AudioFormat(AudioEncoding.G711_ULAW, 8000)
    d.do(SessionConfigured(ConfigPatch((("output_format", g711),))))
    assert d.asked(ConfigureStages) == []
    assert d.session.config.output_format == g711


def test_what_the_model_can_not_change_is_refused() -> None:
    d = Driver()
    d.do(SessionConfigured(ConfigPatch((("model", "other"),))))
    d.do(SessionConfigured(ConfigPatch((("instructions", "be brief"),))))
    codes = [e.error.wire_code for e in d.said(ErrorRaised)]
    assert codes == ["model_update_unsupported", "instructions_update_unsupported"]


def test_a_commit_ends_speech_that_is_still_open() -> None:
    d = Driver(AUTO_VAD)
    d.append(500, probability=0.98)
    effects = d.do(InputCommitted())
    assert names(effects)[:2] == ["UserSpeechStopped", "ItemAdded"]


def test_an_item_can_go_before_all_others() -> None:
    d = Driver()
    d.do(ItemCreated("user", "second", item_id=ItemId("item_2")))
    d.do(ItemCreated("user", "first", item_id=ItemId("item_1"), previous_item_id=ItemId("root")))
    assert d.said(ErrorRaised) == []
    assert [item.item_id for item in d.session._state.history.items] == ["item_1", "item_2"]  # noqa: SLF001


def test_words_that_come_before_the_end_of_speech_belong_to_that_speech() -> None:
    d = Driver(AUTO_VAD)
    d.append(1000, probability=0.98)
    d.listen(heard="hi")
    d.append(800, probability=0.0)
    started = d.said(UserSpeechStarted)[0].item_id
    assert d.said(InputTranscribed)[0].item_id == d.said(UserSpeechStopped)[0].item_id == started
    d.append(1000, probability=0.98)
    d.listen(heard="there")
    assert d.said(InputTranscribed)[1].item_id == d.said(UserSpeechStarted)[1].item_id != started


def test_noise_that_had_no_words_does_not_take_the_next_ones() -> None:
    d = Driver(AUTO_VAD, profile=replace(PROFILE, accepts_short_units=True))
    d.append(300, probability=0.98)
    d.append(600, probability=0.0)
    d.listen()
    d.append(1000, probability=0.98)
    d.listen(heard="hi")
    noise, speech = d.said(UserSpeechStarted)
    assert d.said(InputTranscribed)[0].item_id == speech.item_id != noise.item_id
    assert d.said(InputTranscribed)[0].audio_ms > 0


def test_words_of_two_utterances_in_a_row_go_to_their_own_items() -> None:
    d = Driver(AUTO_VAD, profile=replace(PROFILE, accepts_short_units=True))
    d.append(300, probability=0.98)
    d.append(600, probability=0.0)
    d.append(300, probability=0.98)
    d.listen(heard="hello")
    d.append(600, probability=0.0)
    d.listen(heard="how are you")
    spoken = [e.item_id for e in d.said(UserSpeechStarted)]
    assert [e.item_id for e in d.said(InputTranscribed)] == spoken


def test_an_update_that_the_stages_need_not_know_does_not_change_their_generation() -> None:
    d = Driver()
    d.do(SessionConfigured(ConfigPatch((("turn_detection", TurnDetection()),))))
    d.append(1000, probability=0.0)
    assert d.last_unit().config_generation == 0
    d.do(warmer())
    d.listen()
    d.configured()
    d.do(SessionConfigured(ConfigPatch((("turn_detection", None),))))
    d.append(1000)
    assert d.last_unit().config_generation == 1


def test_endless_text_is_refused_and_what_was_taken_stays() -> None:
    d = Driver(TURN_MODE, limits=SessionLimits(max_pending_input_bytes_per_session=100))
    d.do(TextAppended("x" * 60))
    effects = d.do(TextAppended("y" * 60))
    assert [e.error.wire_code for e in d.said(ErrorRaised, effects)] == ["input_backpressure"]
    d.do(InputCommitted(create_response=True))
    assert d.last_unit().unit.text == "x" * 60


def test_words_of_cleared_speech_go_to_nobody() -> None:
    d = Driver(replace(TURN_MODE, turn_detection=TurnDetection()))
    d.append(500, probability=0.98)
    d.do(InputCleared())
    d.append(500, probability=0.0)
    d.append(500, probability=0.98)
    d.append(600, probability=0.0)
    d.listen(turn_end=True, heard="two")
    committed = d.said(InputItemCommitted)[0].item_id
    assert d.said(InputTranscribed)[0].item_id == committed


def test_clear_leaves_committed_turns_alone() -> None:
    d = Driver(TURN_MODE)
    d.append(1000, speech=True)
    d.do(InputCommitted())
    d.do(InputCleared())
    d.do(CREATE)
    assert len(d.last_unit().unit.pcm) == UNIT_BYTES


@pytest.mark.parametrize("ending", ["cancel", "listen", "fail"])
def test_deferred_overlap_follows_however_the_answer_ends(ending: str) -> None:
    d = turn_mode_speaking() if ending != "listen" else Driver(TURN_MODE)
    if ending == "listen":
        d.do(ItemCreated("user", "hi"))
        d.do(CREATE)
    d.append(1000, speech=True)
    d.do(InputCommitted())
    committed = d.said(InputItemCommitted)[-1]
    assert committed.is_deferred
    submitted = len(d.asked(SubmitUnit))
    if ending == "cancel":
        d.do(ResponseCancelRequested())
    elif ending == "fail":
        job = d.last_speech()
        d.do(SpeechFailed(job.fence, job.seq, StageFailed("vocoder")))
    else:
        d.listen(turn_end=True)
    assert len(d.asked(SubmitUnit)) == submitted + 1
    assert d.said(ItemAdded)[-1].item.item_id == committed.item_id


def test_text_committed_during_an_answer_waits_for_its_end() -> None:
    d = turn_mode_speaking()
    d.do(TextAppended("IMPORTANT"))
    d.do(InputCommitted())
    assert d.said(InputItemCommitted)[-1].is_deferred
    d.voice("answer")
    d.voiced()
    assert d.last_unit().unit.text == "IMPORTANT"


def test_a_deleted_item_is_not_answered() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "my name is Zork", item_id=ItemId("item_z")))
    d.do(ItemDeleted(ItemId("item_z")))
    effects = d.do(CREATE)
    assert d.said(ErrorRaised, effects)[0].error.wire_code == "response_create_without_input"


def test_items_that_would_not_reach_the_model_are_refused() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("system", "be kind"))
    d.do(ItemCreated("assistant", "I am kind"))
    d.do(ItemCreated("user", "x", item_id=ItemId("root")))
    codes = [e.error.wire_code for e in d.said(ErrorRaised)]
    assert codes == ["unsupported_item_role"] * 2 + ["unsupported_option"]


def test_an_acknowledgement_does_not_touch_an_item_of_another_kind() -> None:
    d = Driver(TURN_MODE)
    d.do(ItemCreated("user", "hi"))
    d.do(ResponseRequested(ResponseOptions(is_out_of_band=True)))
    d.speak("secret")
    d.voice("secret")
    d.voiced()
    response_id = d.said(ResponseStarted)[0].response_id
    d.do(ItemCreated("user", "mine", item_id=ItemId(f"item_{response_id}")))
    d.do(PlaybackAcked(1000, response_id=response_id))
    assert d.remembered(ItemId(f"item_{response_id}")) == "mine"


def test_a_truncation_during_the_answer_is_remembered_after_it() -> None:
    d = Driver()
    speaking(d, "one two")
    item_id = d.said(ResponseStarted)[0].item_id
    d.do(ItemTruncated(item_id, 0))
    d.voiced()
    assert d.remembered(item_id) == ""
