"""One session's mailbox: exactly once, in wire order, whatever is slow and whatever breaks."""

import asyncio
import gc
from dataclasses import replace

import pytest

from serve_app.sessions.mailbox import FLOOD_MARGIN_BYTES, FRAME_BYTES, Mailbox
from session.config import (
    AudioEncoding,
    AudioFormat,
    ConfigPatch,
    SessionLimits,
    TurnDetection,
)
from session.effects import CloseSocket
from session.errors import (
    InputBackpressure,
    MalformedEvent,
    StageFailed,
)
from session.events import (
    ErrorRaised,
    HeartbeatAnswered,
    InputBufferCleared,
    ResponseFinished,
    SessionCreated,
    SessionUpdated,
    SpeechDelta,
    UserSpeechStarted,
)
from session.ids import SessionId
from session.realtime.commands import AudioReceived, Command, SessionResumeAsked
from session.socket_stimuli import EventAcked
from session.stimuli import (
    AudioAppended,
    BargedIn,
    CloseRequested,
    EventRefused,
    HeartbeatReceived,
    InputCleared,
    InputCommitted,
    SessionConfigured,
    SpeechArrived,
    SpeechFinished,
    SpeechScore,
    Stimulus,
    TextAppended,
    Ticked,
    UnitFailed,
    UnitFinished,
)
from tests.fakes.rig import Rig, audio, config, events_of, names, settle
from tests.fakes.stages import ScriptedDirectory, answering

FORMAT_24K = AudioFormat(AudioEncoding.PCM16, 24_000)
FORMAT_WAV = AudioFormat(AudioEncoding.WAV, 0)
CLIENT_STIMULI = (
    AudioAppended,
    TextAppended,
    InputCleared,
    InputCommitted,
    HeartbeatReceived,
    EventRefused,
    BargedIn,
)


# --- order --------------------------------------------------------------------------------------


def tagged(index: int) -> Command:
    """Return a client event that carries its place in the order; some are slow to convert."""
    event_id = str(index)
    slow = replace(audio(4_000), event_id=event_id)
    kinds: list[Command] = [
        replace(audio(20), event_id=event_id),
        slow,
        TextAppended("hello", event_id),
        HeartbeatReceived(event_id),
        InputCleared(event_id),
        EventRefused(MalformedEvent("no"), event_id),
        replace(slow, data=slow.data[:-1]),
    ]
    return kinds[index % len(kinds)]


async def test_every_event_arrives_once_in_wire_order_past_slow_conversion_and_stages() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        rig.knobs.hold("append")
        posted = [tagged(index) for index in range(100)]
        for index, command in enumerate(posted):
            rig.post(command)
            if index % 7 == 0:
                await asyncio.sleep(0)
        rig.post(HeartbeatReceived("last"))
        await rig.until(HeartbeatAnswered)
        while len(rig.handled(*CLIENT_STIMULI)) < 101:
            await rig.next()
        order = [
            stimulus.event_id
            for stimulus in rig.handled(*CLIENT_STIMULI)
            if isinstance(stimulus, CLIENT_STIMULI)
        ]
        assert order == [str(index) for index in range(100)] + ["last"]
        rig.knobs.release("append")


async def test_a_slow_unit_does_not_hold_the_mailbox() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        rig.knobs.hold("append")
        rig.post(audio(1_000))
        await rig.knobs.wait_called("append")
        rig.post(HeartbeatReceived())
        await rig.until(HeartbeatAnswered)
        rig.knobs.release("append")


async def test_clear_and_barge_in_leave_later_events_alone() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        rig.knobs.hold("append")
        rig.post(audio(1_000, event_id="a"), InputCleared("b"), audio(500, event_id="c"))
        rig.post(BargedIn("d"), audio(500, event_id="e"), TextAppended("f", "f"))
        rig.post(HeartbeatReceived("g"))
        await rig.until(HeartbeatAnswered)
        order = [
            stimulus.event_id
            for stimulus in rig.handled(*CLIENT_STIMULI)
            if isinstance(stimulus, CLIENT_STIMULI)
        ]
        assert order == list("abcdefg")
        rig.knobs.release("append")


async def test_close_does_not_overtake_what_came_before_it() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        await rig.until(SessionUpdated)
        rig.post(audio(4_000), InputCleared(), HeartbeatReceived(), CloseRequested())
        said = await rig.read_until(CloseSocket)
        kinds = [type(told) for told in rig.handled(*CLIENT_STIMULI, CloseRequested)]
        assert kinds == [AudioAppended, InputCleared, HeartbeatReceived, CloseRequested]
        assert names(said)[-4:] == [
            "InputBufferCleared", "HeartbeatAnswered", "SessionClosed", "CloseSocket",
        ]  # fmt: skip


async def test_input_during_the_opening_is_kept_in_order() -> None:
    directory = answering()
    directory.knobs.hold("open")
    async with Rig(directory, config=config()) as rig:
        rig.post(audio(600), audio(400))
        await directory.knobs.wait_called("open")
        directory.knobs.release("open")
        said = await rig.read_until(ResponseFinished)
        assert names(said)[:2] == ["SessionCreated", "SessionUpdated"]
        assert directory.knobs.names() == ["open", "append", "speak"]


# --- audio --------------------------------------------------------------------------------------


async def test_the_rest_of_a_resampled_item_comes_before_its_commit() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        pcm_24k = replace(audio(900), data=audio(1_350).data, format=FORMAT_24K, is_speech=True)
        rig.post(pcm_24k, InputCommitted())
        await rig.until(SessionCreated)
        await settle()
        told = rig.handled(AudioAppended, InputCommitted)
        assert [type(stimulus) for stimulus in told] == [
            AudioAppended, AudioAppended, InputCommitted,
        ]  # fmt: skip
        first, rest = told[0], told[1]
        assert isinstance(first, AudioAppended)
        assert isinstance(rest, AudioAppended)
        assert len(first.pcm) + len(rest.pcm) == 900 * 32
        assert rest.is_speech
        assert rest.wire_bytes == 0


async def test_a_cleared_input_leaves_no_rest() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        rig.post(replace(audio(100), format=FORMAT_24K), InputCleared(), InputCommitted())
        error = await rig.until(ErrorRaised)
        assert error.error.wire_code == "input_audio_buffer_empty"


async def test_bad_audio_is_refused_in_its_place() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        rig.post(replace(audio(100), format=FORMAT_WAV, event_id="bad"), HeartbeatReceived())
        said = await rig.read_until(HeartbeatAnswered)
        error = said[-2]
        assert isinstance(error, ErrorRaised)
        assert (error.error.wire_code, error.event_id) == ("bad_audio", "bad")


@pytest.mark.parametrize(
    ("append", "expected"),
    [
        (audio(100, loud=True), True),
        (audio(100, loud=False), False),
        (replace(audio(100, loud=False), is_speech=True), True),
        (replace(audio(100, loud=True), is_speech=False), False),
        (replace(audio(100), data=b""), None),
    ],
)
async def test_the_clients_opinion_comes_before_loudness(
    append: AudioReceived, expected: bool | None
) -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        rig.post(append, HeartbeatReceived())
        await rig.until(HeartbeatAnswered)
        [told] = rig.handled(AudioAppended)
        assert isinstance(told, AudioAppended)
        assert told.is_speech is expected


async def test_scores_count_the_sessions_samples_from_its_beginning() -> None:
    async with Rig(ScriptedDirectory(), config=config(turn_detection=TurnDetection())) as rig:
        rig.post(audio(200, loud=False), audio(1_000), HeartbeatReceived())
        said = await rig.read_until(HeartbeatAnswered)
        ends = [score.end_sample for told in rig.handled(AudioAppended) for score in scores(told)]
        assert ends == [512 * (index + 1) for index in range(37)]
        [started] = events_of(UserSpeechStarted, said)
        assert isinstance(started, UserSpeechStarted)
        assert started.audio_start_ms == 0


async def test_detection_that_is_switched_on_late_still_knows_the_time() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        await rig.until(SessionUpdated)
        rig.post(audio(1_000, loud=False))
        rig.post(SessionConfigured(ConfigPatch((("turn_detection", TurnDetection()),))))
        await rig.until(SessionUpdated)
        rig.post(audio(64, loud=False), HeartbeatReceived())
        await rig.until(HeartbeatAnswered)
        late = rig.handled(AudioAppended)[-1]
        assert [score.end_sample for score in scores(late)] == [16_512, 17_024]


def scores(told: Stimulus) -> tuple[SpeechScore, ...]:
    assert isinstance(told, AudioAppended)
    return told.scores


async def test_waiting_input_is_bounded_and_the_refusal_keeps_its_place() -> None:
    mailbox = Mailbox(max_bytes=3 * FRAME_BYTES)
    append = AudioReceived(data=b"", format=None, wire_bytes=100, event_id="x")
    for content in (append, append, append):
        mailbox.post(content, at_s=0.0, frame_bytes=100)
    mailbox.post(HeartbeatReceived(), at_s=0.0)
    letters = [await mailbox.take() for _ in range(4)]
    refused = letters[2].content
    assert [type(letter.content) for letter in letters] == [
        AudioReceived, AudioReceived, EventRefused, HeartbeatReceived,
    ]  # fmt: skip
    assert isinstance(refused, EventRefused)
    assert isinstance(refused.error, InputBackpressure)
    assert refused.event_id == "x"
    for letter in letters:
        mailbox.settle(letter)
    mailbox.post(append, at_s=0.0)
    assert isinstance((await mailbox.take()).content, AudioReceived)


async def test_input_that_has_been_dealt_with_counts_no_longer() -> None:
    limits = SessionLimits(max_pending_input_bytes_per_session=100_000)
    async with Rig(ScriptedDirectory(), config=config(), limits=limits) as rig:
        await rig.until(SessionUpdated)
        for _ in range(6):
            rig.post(audio(1_000), HeartbeatReceived())
            said = await rig.read_until(HeartbeatAnswered)
            assert not events_of(ErrorRaised, said)
            await settle()


# --- answers and cancellation -------------------------------------------------------------------


async def test_a_unit_becomes_an_answer() -> None:
    async with Rig(answering(), config=config()) as rig:
        await rig.until(SessionUpdated)
        rig.post(audio(1_000))
        said = await rig.read_until(ResponseFinished)
        assert names(said) == [
            "ResponseStarted", "SpeakDecided",
            "SpeechDelta", "SpeechDelta", "SpeechDelta", "ResponseFinished",
        ]  # fmt: skip
        text = "".join(event.transcript for event in said if isinstance(event, SpeechDelta))
        assert text == "Answer 1 to sess_1, part 1 of 1."
        assert rig.world.timings.frame_to_append.count == 1


async def test_an_answer_goes_on_when_its_time_comes() -> None:
    async with Rig(answering(sentences=2), config=config()) as rig:
        rig.post(audio(1_000))
        await rig.until(SpeechDelta)
        while not rig.handled(SpeechFinished):
            await settle()
        assert rig.clock.pending == 1
        assert not rig.handled(Ticked)
        rig.clock.advance(2.5)
        finished = await rig.until(ResponseFinished)
        assert (
            finished.item.text
            == "Answer 1 to sess_1, part 1 of 2. Answer 1 to sess_1, part 2 of 2."
        )


async def test_barge_in_stops_the_voice_and_reaches_both_doors() -> None:
    directory = answering()
    directory.knobs.hold("chunk")
    async with Rig(directory, config=config()) as rig:
        rig.post(audio(1_000))
        await directory.knobs.wait_called("chunk")
        [stages] = directory.opened
        assert stages.open_iterators == 1
        rig.post(BargedIn())
        await directory.knobs.wait_called("cancel")
        await settle()
        assert stages.open_iterators == 0
        directory.knobs.release("chunk")
        await settle()
        assert not rig.handled(SpeechArrived, SpeechFinished)
        session_id = SessionId("sess_1")
        assert directory.stage0.fence_of(session_id) == rig.actor.fence
        assert directory.stage1.fence_of(session_id) == rig.actor.fence


async def test_a_unit_of_the_new_epoch_waits_for_the_cancel() -> None:
    directory = answering()
    async with Rig(directory, config=config()) as rig:
        directory.knobs.hold("chunk")
        rig.post(audio(1_000))
        await directory.knobs.wait_called("chunk")
        directory.knobs.hold("cancel")
        rig.post(BargedIn(), audio(1_000))
        await directory.knobs.wait_called("cancel")
        await settle()
        assert directory.knobs.names() == ["open", "append", "speak", "cancel"]
        assert rig.handled(BargedIn, AudioAppended)[-1] == rig.handled(AudioAppended)[-1]
        directory.knobs.release("cancel")
        while len(rig.handled(UnitFinished)) < 2:
            await settle()
        assert not rig.handled(UnitFailed)
        last = rig.handled(UnitFinished)[-1]
        assert isinstance(last, UnitFinished)
        assert last.fence == rig.actor.fence


async def test_speech_that_waits_for_its_turn_is_let_go_of_when_stale() -> None:
    directory = answering(speak_at_units=[1, 2], sentences=2)
    directory.knobs.hold("chunk")
    async with Rig(directory, config=config()) as rig:
        rig.post(audio(1_000), audio(1_000))
        while len(rig.handled(UnitFinished)) < 2:
            await settle()
        assert len(directory.live_refs) == 2  # one is being spoken, one waits
        rig.post(BargedIn())
        await directory.knobs.wait_called("cancel")
        await settle()
        gc.collect()
        assert len(directory.live_refs) == 0


async def test_speech_that_comes_too_late_is_not_kept() -> None:
    directory = answering(speak_at_units=[1, 2])
    async with Rig(directory, config=config()) as rig:
        rig.post(audio(1_000))
        await rig.until(ResponseFinished)
        directory.knobs.hold("answer")
        rig.post(audio(1_000))
        await directory.knobs.wait_called("answer")
        await directory.knobs.wait_called("answer")
        rig.post(BargedIn())
        await directory.knobs.wait_called("cancel")
        directory.knobs.release("answer")
        while len(rig.handled(UnitFinished)) < 2:
            await settle()
        gc.collect()
        assert len(directory.live_refs) == 0


async def test_answers_that_are_only_read_do_not_pile_up_speech() -> None:
    directory = ScriptedDirectory(speak_at_units=list(range(1, 400)), sentences=1)
    async with Rig(directory, config=config(output_modalities=("text",))) as rig:
        for _ in range(300):
            rig.post(audio(1_000, loud=False))
            await rig.until(ResponseFinished)
        gc.collect()
        assert len(directory.live_refs) <= 256


async def test_a_failed_unit_fails_the_answer_and_the_session_lives() -> None:
    async with Rig(answering(fail_at_units=[1], speak_at_units=[2]), config=config()) as rig:
        rig.post(audio(1_000))
        error = await rig.until(ErrorRaised)
        assert isinstance(error.error, StageFailed)
        rig.post(audio(1_000))
        assert (await rig.until(ResponseFinished)).status == "completed"


async def test_failed_speech_fails_the_answer_and_the_session_lives() -> None:
    async with Rig(answering(fail_at_sentences=[1], speak_at_units=[1, 2]), config=config()) as rig:
        rig.post(audio(1_000))
        await rig.until(ErrorRaised)
        rig.post(audio(1_000))
        assert (await rig.until(ResponseFinished)).status == "completed"


async def test_settings_reach_the_stages_or_are_refused() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        await rig.until(SessionUpdated)
        rig.post(SessionConfigured(ConfigPatch((("voice", "low"),))))
        assert (await rig.until(SessionUpdated)).session.config.voice == "low"
        rig.post(SessionConfigured(ConfigPatch((("voice", "nobody's"),)), "c-1"))
        assert (await rig.until(ErrorRaised)).event_id == "c-1"
        assert rig.session.config.voice == "low"


async def test_a_cancel_names_the_last_unit_whose_answer_counted() -> None:
    """Stage0 has finished a second unit by then, and has to take it back."""
    directory = answering()
    async with Rig(directory, config=config()) as rig:
        rig.post(audio(1_000))
        await rig.until(ResponseFinished)
        await rig.knobs.wait_called("answer")
        rig.knobs.hold("answer")
        rig.post(audio(1_000))
        await rig.knobs.wait_called("answer")
        rig.post(BargedIn())
        await rig.knobs.wait_called("cancel")
        await settle()
        rig.knobs.release("answer")
        assert directory.consumed == [1]


async def test_audio_after_a_new_input_format_is_read_in_it_or_not_if_it_is_refused() -> None:
    for refuses, seconds in ((False, 2), (True, 1)):
        directory = ScriptedDirectory()
        async with Rig(directory, config=config()) as rig:
            await rig.until(SessionUpdated)
            rig.knobs.hold("configure")
            if refuses:
                rig.knobs.fail_next("configure", StageFailed("no"))
            at_8k = AudioFormat(AudioEncoding.PCM16, 8_000)
            patch = ConfigPatch((("voice", "low"), ("input_format", at_8k)))
            rig.post(SessionConfigured(patch), audio(1_000), HeartbeatReceived("after"))
            await rig.knobs.wait_called("configure")
            await settle()
            assert not rig.handled(AudioAppended, HeartbeatReceived)
            rig.knobs.release("configure")
            await rig.until(HeartbeatAnswered)
            heard = [s for s in rig.handled(AudioAppended) if isinstance(s, AudioAppended)]
            read_s = sum(len(append.pcm) for append in heard) / 32_000
            assert read_s == pytest.approx(seconds, abs=0.2)


async def test_commands_about_resuming_get_a_typed_error() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        rig.post(SessionResumeAsked(SessionId("sess_9"), "token", event_id="r"))
        error = await rig.until(ErrorRaised)
        assert (error.error.wire_code, error.event_id) == ("unsupported_session_resume", "r")
        rig.post(EventAcked(7, "k"))
        assert (await rig.until(ErrorRaised)).event_id == "k"


# --- two at once --------------------------------------------------------------------------------


async def test_two_sessions_do_not_mix() -> None:
    directory = ScriptedDirectory(max_sessions=2, speak_at_units=[1, 2, 3], sentences=1)
    async with (
        Rig(directory, config=config(), session_id="sess_a") as a,
        Rig(directory, config=config(), session_id="sess_b") as b,
    ):
        pitches = []
        for turn in (1, 2, 3):
            a.post(audio(1_000, loud=False))
            b.post(audio(1_000, loud=False))
            for rig, name in ((a, "sess_a"), (b, "sess_b")):
                said = await rig.read_until(ResponseFinished)
                deltas = [event for event in said if isinstance(event, SpeechDelta)]
                text = "".join(delta.transcript for delta in deltas)
                assert text == f"Answer {turn} to {name}, part 1 of 1."
                pitches.append(b"".join(delta.pcm for delta in deltas))
        assert len(set(pitches)) == 2
        await a.close()
        assert directory.open_sessions == 1
        b.post(InputCleared())
        await b.until(InputBufferCleared)
    assert directory.open_sessions == directory.bound_sessions == 0


def test_a_client_that_sends_on_although_it_is_refused_is_flooding() -> None:
    mailbox = Mailbox(max_bytes=10 * FRAME_BYTES)
    for _ in range(20):
        mailbox.post(HeartbeatReceived(), at_s=0.0, frame_bytes=10)
    assert not mailbox.is_flooded
    for _ in range(FLOOD_MARGIN_BYTES // FRAME_BYTES):
        mailbox.post(HeartbeatReceived(), at_s=0.0, frame_bytes=10)
    assert mailbox.is_flooded
