"""Where utterances begin and end, and what speech over an answer does."""

from dataclasses import replace

import pytest

from session.config import ConfigPatch, OverlapPolicy, ResponseOptions, TurnDetection
from session.effects import SubmitUnit
from session.events import (
    InputItemCommitted,
    OverlapDecided,
    ResponseFinished,
    ResponseStarted,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.item_events import (
    InputTranscribed,
    ItemAdded,
)
from session.stimuli import (
    AudioAppended,
    CloseRequested,
    InputCommitted,
    ResponseRequested,
    SessionConfigured,
    SpeechScore,
    TextAppended,
)
from tests.session.driver import AUTO_VAD, PROFILE, TURN_MODE, WINDOW, WORDLESS, Driver, names
from tests.session.scored import scored, windows
from tests.session.test_commit_table import committed, end, ledger, turn_answer

CREATE = ResponseRequested(ResponseOptions())
COMMIT = InputCommitted()
TURN_VAD = replace(TURN_MODE, turn_detection=TurnDetection())


# --- two utterances in one append --------------------------------------------------------------


def test_each_utterance_is_an_item_of_its_own() -> None:
    detection = TurnDetection(create_response=False)
    d = Driver(replace(TURN_MODE, turn_detection=detection), profile=WORDLESS)
    scored(d, (20, 0.0), (10, 0.98), (20, 0.0), (10, 0.98), (20, 0.0))
    opened = names(d.effects).index("SessionUpdated")
    kinds = names(d.effects)[opened + 1 :]
    once = ["UserSpeechStarted", "UserSpeechStopped", "ItemAdded", "InputItemCommitted", "ItemDone"]
    assert kinds == [*once, *once]
    started = [event.item_id for event in d.said(UserSpeechStarted)]
    assert [event.item_id for event in d.said(InputItemCommitted)] == started
    d.do(CREATE)
    heard = windows(d.last_unit())
    assert heard == sorted(set(heard)), "no window twice, and in order"
    first_end = 20 + 10 + 16  # 500 ms of silence, in whole windows
    assert set(range(20, first_end)) <= set(heard)
    assert set(range(50, 60)) <= set(heard)


def test_the_end_and_the_next_beginning_in_one_append() -> None:
    detection = TurnDetection(prefix_padding_ms=100)
    d = Driver(replace(TURN_MODE, turn_detection=detection), profile=WORDLESS)
    scored(d, (20, 0.0), (10, 0.98))
    effects = scored(d, (20, 0.0), (10, 0.98))
    assert [n for n in names(effects) if "Speech" in n] == [
        "UserSpeechStopped",
        "UserSpeechStarted",
    ]
    assert committed(d, effects).item_id == d.said(UserSpeechStarted)[0].item_id
    # The answer to the first is interrupted by the second, and gets only the first's audio.
    assert d.said(ResponseFinished, effects)[0].reason == "turn_detected"
    item = d.said(ItemAdded, effects)[0].item
    assert item.audio_ms == (3 + 10 + 16) * 32 + 4
    # 100 ms before window 50, where the second utterance begins.
    assert ledger(d).open_bytes == 10 * 1024 + 100 * 32
    # Nobody answers the first while the second goes on; then one answer is made of both.
    assert d.asked(SubmitUnit) == []
    scored(d, (20, 0.0))
    heard = windows(d.last_unit())
    assert set(range(20, 30)) | set(range(50, 60)) <= set(heard)
    assert len(d.said(ResponseStarted)) == 2


def test_frames_of_an_append_with_two_utterances_come_once() -> None:
    d = Driver(replace(TURN_MODE, turn_detection=TurnDetection(create_response=False)))
    scores = [SpeechScore(0.9 if n < 10 else 0.0, (n + 1) * WINDOW) for n in range(40)]
    d.do(AudioAppended(bytes(40 * WINDOW * 2), scores=tuple(scores), video_frames=(b"f",)))
    assert ledger(d).total_frames == 1
    d.do(CREATE)
    assert d.last_unit().unit.video_frames == ((b"f",),)


def test_no_edge_is_lost_where_places_do_not_fit() -> None:
    d = Driver(replace(TURN_MODE, turn_detection=TurnDetection(create_response=False)))
    likely = [0.9] * 10 + [0.0] * 20 + [0.9] * 10
    ahead = 100
    scores = [SpeechScore(p, (ahead + n + 1) * WINDOW) for n, p in enumerate(likely)]
    d.do(AudioAppended(bytes(len(likely) * WINDOW * 2), scores=tuple(scores)))
    d.do(CloseRequested())
    assert len(d.said(UserSpeechStarted)) == len(d.said(UserSpeechStopped)) == 2


def test_an_utterance_that_the_client_dropped_is_no_item() -> None:
    d = turn_answer(replace(TURN_MODE, turn_detection=TurnDetection(interrupt_response=False)))
    scores = [SpeechScore(0.9 if n < 10 else 0.0, (n + 1) * WINDOW) for n in range(40)]
    d.do(AudioAppended(bytes(40 * WINDOW * 2), scores=tuple(scores), overlap_action="drop"))
    assert d.said(InputItemCommitted) == []
    assert ledger(d).discarded["client_overlap_action"] == 40 * WINDOW * 2
    assert len(d.said(UserSpeechStarted)) == len(d.said(UserSpeechStopped)) == 1


def test_prefix_padding_is_kept_also_over_an_answer() -> None:
    d = turn_answer(replace(TURN_MODE, turn_detection=TurnDetection()))
    scored(d, (60, 0.0))
    scored(d, (5, 0.98))
    assert d.said(ResponseFinished)[0].reason == "turn_detected"
    assert ledger(d).open_bytes == 5 * 1024 + 300 * 32


@pytest.mark.parametrize("prefix", [0, 100, 300])
def test_an_item_begins_a_little_before_its_speech(prefix: int) -> None:
    detection = TurnDetection(prefix_padding_ms=prefix, create_response=False)
    d = Driver(replace(TURN_MODE, turn_detection=detection))
    for _ in range(10):
        scored(d, (6, 0.0))
    scored(d, (2, 0.98))
    scored(d, (6, 0.98), (10, 0.0))
    started = d.said(UserSpeechStarted)[0].audio_start_ms
    assert started == 60 * 32 - prefix
    assert ledger(d).open_bytes == 18 * 1024 + prefix * 32


def test_text_of_an_item_survives_the_silence_before_its_speech() -> None:
    detection = TurnDetection(prefix_padding_ms=0, min_speech_duration_ms=0)
    d = Driver(replace(TURN_MODE, turn_detection=detection))
    d.do(TextAppended("look"))
    scored(d, (20, 0.0), (10, 0.98), (20, 0.0))
    assert d.last_unit().unit.text == "look"


def test_speech_is_paired_when_detection_is_switched_off() -> None:
    d = Driver(TURN_VAD)
    d.append(500, probability=0.98)
    d.do(SessionConfigured(ConfigPatch((("turn_detection", None),))))
    assert len(d.said(UserSpeechStarted)) == len(d.said(UserSpeechStopped)) == 1


# --- accumulating overlap ------------------------------------------------------------------------


def test_overlap_accumulates_until_it_interrupts() -> None:
    d = turn_answer(replace(TURN_MODE, overlap_policy=OverlapPolicy.BARGE_IN_ON_SPEECH))
    for _ in range(6):
        d.append(200, speech=True)
    told = [(event.reason, event.overlap_speech_ms) for event in d.said(OverlapDecided)]
    assert told == [
        ("short_ack", 200),
        ("short_ack", 400),
        ("short_ack", 600),
        ("accumulating_overlap_speech", 800),
        ("accumulating_overlap_speech", 1000),
        ("long_overlap_speech", 1200),
    ]
    assert d.said(ResponseFinished)[0].reason == "barge_in"


def test_the_count_begins_anew_with_each_answer() -> None:
    d = turn_answer(replace(TURN_MODE, overlap_policy=OverlapPolicy.BARGE_IN_ON_SPEECH))
    d.append(1000, speech=True)
    d.do(COMMIT)
    end(d)
    d.speak("second")
    d.voice("second")
    d.append(400, speech=True)
    assert d.said(OverlapDecided)[-1].overlap_speech_ms == 400


def test_silence_over_an_answer_is_not_kept_and_clears_nothing() -> None:
    d = turn_answer()
    d.append(800, speech=True)
    d.append(1000, speech=False)
    assert d.said(OverlapDecided)[-1].reason == "silence_or_noise"
    assert ledger(d).open_bytes == 800 * 32
    d.do(COMMIT)
    assert committed(d).is_deferred


def test_a_transcript_that_only_says_go_on_is_not_kept() -> None:
    d = turn_answer()
    d.do(AudioAppended(bytes(32_000), is_speech=True, text_hint="Go on!"))
    assert d.said(OverlapDecided)[-1].reason == "short_ack_transcript"
    assert ledger(d).open_bytes == 0
    assert ledger(d).discarded["short_ack_transcript"] == 32_000


def test_a_continuous_session_is_told_only_of_news() -> None:
    d = Driver(replace(AUTO_VAD, overlap_policy=OverlapPolicy.BARGE_IN_ON_SPEECH))
    d.append(1000, probability=0.98)
    d.speak("one two three")
    d.voice("one ")
    for _ in range(3):
        d.append(200, probability=0.98)
    assert [event.reason for event in d.said(OverlapDecided)] == ["server_vad_utterance_active"]
    d.append(1000, probability=0.0)
    d.append(200, probability=0.98)
    assert [event.reason for event in d.said(OverlapDecided)][-1] == "server_vad_speech_started"


def test_an_append_can_end_with_its_utterance() -> None:
    d = Driver(replace(TURN_MODE, turn_detection=TurnDetection(create_response=False)))
    scored(d, (10, 0.98), (16, 0.0))
    assert len(d.said(InputItemCommitted)) == 1
    assert ledger(d).open_bytes == 0


# --- whose words they are ------------------------------------------------------------------------


def test_words_belong_to_speech_whose_end_waited_behind_a_busy_model() -> None:
    d = Driver(AUTO_VAD, profile=replace(PROFILE, accepts_short_units=True))
    d.append(1000, probability=0.98)  # is out, and for long
    d.append(1000, probability=0.98)
    d.append(600, probability=0.0)  # the end comes two units before the model gets it
    d.listen()
    d.listen()
    d.speak("yes", heard="is anybody there")
    (transcribed,) = d.said(InputTranscribed)
    assert transcribed.item_id == d.said(UserSpeechStarted)[0].item_id
