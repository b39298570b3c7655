"""The story of a session: what is in it, what is only counted, and that it stays small."""

from collections.abc import Iterator

import pytest

from serve_app.handled import Handled, handle, told_by
from serve_app.logs.session_records import SessionRecord, SessionRecords
from serve_app.logs.session_story import Caller, SessionStory, StoryEntry
from session.config import SessionLimits
from session.effects import AttachSocket, CloseSocket, DetachSocket, Effect
from session.errors import AdmissionRefused, MalformedEvent, StageUnavailable
from session.events import ErrorRaised, ResponseFinished, SessionCreated, SpeechDelta
from session.ids import AttachmentId
from session.machine import DuplexSession
from session.realtime.commands import SessionResumeAsked
from session.socket_events import SessionReplaced, SessionResumed
from session.socket_stimuli import SocketLost
from session.stimuli import (
    BargedIn,
    CloseRequested,
    EventRefused,
    OpenFailed,
    OpenRequested,
    Stimulus,
    UnitFailed,
)
from tests.fakes.rig import Rig, audio, config, settle
from tests.fakes.stages import ScriptedDirectory, answering
from tests.realtime.samples import SNAPSHOT
from tests.support.object_count import size_of
from tests.support.spoken_hour import SpokenHour

CALLER = Caller("duplex", "alice")


def of(story: SessionStory, stimulus: str) -> list[StoryEntry]:
    return [entry for entry in story.entries if entry.stimulus == stimulus]


def told(story: SessionStory) -> Iterator[str]:
    """What happened first, without what is only counted."""
    return (entry.stimulus for entry in story.entries)


async def test_the_story_of_a_conversation() -> None:
    async with Rig(answering(), config=config()) as rig:
        await rig.until(SessionCreated)
        rig.clock.advance(0.5)
        rig.post(audio(1_000))
        await rig.until(ResponseFinished)
        await rig.close()
    story = rig.record.story
    names = list(told(story))
    assert names[:3] == ["OpenRequested", "StagesOpened", "AudioAppended"]
    assert names[-2:] == ["CloseRequested", "StagesReleased"]
    [heard] = of(story, "AudioAppended")
    assert (heard.audio_ms, heard.effects, heard.first_s) == (1_000, ("SubmitUnit",), 0.5)
    answered = of(story, "UnitFinished")[0]
    assert answered.words == ("speak",)
    assert answered.unit == 1
    assert answered.characters > 0
    assert "Synthesize" in answered.effects
    began = of(story, "SpeechArrived")[0]
    assert began.effects == ("ResponseStarted", "SpeakDecided", "SpeechDelta")
    assert (began.audio_ms, began.unit) == (200, 1)
    [ended] = [entry for entry in story.entries if "ResponseFinished" in entry.effects]
    assert "completed" in ended.words
    assert ended.response_id == began.response_id is not None
    assert story.answers == 1
    assert story.units >= 1
    assert [entry.number for entry in story.entries] == list(range(1, len(names) + 1))
    assert story.replicas == ("hearing", "speaking")


async def test_what_happens_all_the_time_is_one_entry() -> None:
    async with Rig(ScriptedDirectory(), config=config()) as rig:
        await rig.until(SessionCreated)
        for _ in range(40):
            rig.post(audio(100, loud=False))
        rig.post(CloseRequested())
        await rig.until(CloseSocket)
    story = rig.record.story
    appended = of(story, "AudioAppended")
    assert sum(entry.times for entry in appended) == 40
    assert sum(entry.audio_ms for entry in appended) == 4_000
    assert len(appended) == 3  # the first, those that completed a unit, and all others
    assert len(story.entries) < 12


async def test_a_flood_of_wrong_events_does_not_push_the_story_out() -> None:
    async with Rig(ScriptedDirectory()) as rig:
        await rig.until(SessionCreated)
        for _ in range(300):
            rig.post(EventRefused(MalformedEvent("what?", code="unknown_event")))
            await rig.until(ErrorRaised)
        rig.post(EventRefused(MalformedEvent("how?", code="invalid_json")))
        await rig.close()
    refused = of(rig.record.story, "EventRefused")
    assert [(entry.words, entry.times) for entry in refused] == [
        (("unknown_event",), 300),
        (("invalid_json",), 1),
    ]
    assert rig.record.story.left_out == 0


async def test_stale_and_fence_are_in_the_story() -> None:
    directory = answering(sentences=2)
    async with Rig(directory, config=config()) as rig:
        await rig.until(SessionCreated)
        rig.post(audio(1_000))
        await rig.until(SpeechDelta)
        directory.knobs.hold("answer")
        rig.post(audio(1_000))
        await settle()
        rig.post(BargedIn())
        await rig.until(ResponseFinished)
        directory.knobs.release("answer")
        await settle()
        await rig.close()
    story = rig.record.story
    cut = of(story, "BargedIn")[0]
    assert (cut.epoch, cut.is_stale) == (1, False)
    assert [entry.is_stale for entry in of(story, "UnitFinished")].count(True) == 1


async def test_a_client_s_own_words_are_not_in_it() -> None:
    async with Rig(ScriptedDirectory()) as rig:
        await rig.until(SessionCreated)
        rig.post(CloseRequested("whatever a client writes"))
        await rig.until(CloseSocket)
        await rig.ended()
    assert "whatever" not in "".join(rig.record.story.lines())
    assert of(rig.record.story, "CloseRequested")[0].words == ("other",)


async def test_a_session_that_breaks_has_the_stimulus_that_broke_it_last() -> None:
    async with Rig(ScriptedDirectory()) as rig:
        rig.session.breaks_at = BargedIn
        rig.post(BargedIn())
        await rig.ended()
    last = rig.record.story.entries[-1]
    assert (last.stimulus, last.words) == ("BargedIn", ("broke",))


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname != "DEBUG"]


async def test_the_lines_of_a_session(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "serve_app")
    limits = SessionLimits(disconnect_grace_s=30)
    async with Rig(answering(), config=config(), limits=limits, is_resumable=True) as rig:
        created = await rig.until(SessionCreated)
        assert created.resume_token is not None
        rig.post(audio(1_000))
        await rig.until(ResponseFinished)
        rig.post(SocketLost())
        second, third = AttachmentId("att_2"), AttachmentId("att_3")
        wrong = SessionResumeAsked(rig.actor.fence.session_id, "wrong", 0)
        right = SessionResumeAsked(rig.actor.fence.session_id, created.resume_token, 0)
        assert await rig.actor.attach(second, wrong) is not None
        assert await rig.actor.attach(third, right) is None
        rig.actor.post(CloseRequested(), attachment=third)
        await rig.ended()
    assert messages(caplog) == [
        *("session begun", "client detached", "resume refused"),
        *("session resumed", "session ended"),
    ]
    ended = vars(caplog.records[-1])
    assert ended["session"] == "sess_1"
    assert (ended["reason"], ended["answers"]) == ("client_close", 1)
    assert ended["units"] == rig.record.story.units
    opened = vars(caplog.records[0])
    assert (opened["stage0_replica"], opened["principal"]) == ("hearing", "tester")


async def test_refusals_are_bounded_and_stages_lost_are_warnings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "serve_app")
    directory = ScriptedDirectory()
    directory.knobs.fail_next("open", AdmissionRefused("full"))
    async with Rig(directory) as rig:
        await rig.ended()
    assert messages(caplog) == ["session not opened"]
    assert vars(caplog.records[0])["error_code"] == "resource_exhausted"
    caplog.clear()
    async with Rig(ScriptedDirectory()) as rig:
        await rig.until(SessionCreated)
        rig.directory.opened[0].lose("stage1", StageUnavailable("gone"))
        await rig.ended()
    assert messages(caplog)[1:] == ["a stage is lost", "session ended"]
    lost = caplog.records[1]
    assert (lost.levelname, vars(lost)["stage"]) == ("WARNING", "stage1")


class Noticed:
    """The notices of sessions, told of stimuli by hand."""

    def __init__(self) -> None:
        self.records = SessionRecords()
        self.fence = SpokenHour().session.fence

    def begin(self) -> SessionRecord:
        return self.records.begin(self.fence, CALLER, since_unix_s=0, now=0.0)

    def tell(self, record: SessionRecord, stimulus: Stimulus, now: float, *asked: Effect) -> None:
        told = told_by(stimulus)
        record.handled(Handled(told, asked, self.fence, is_stale=False, at_s=now, now=now))


def test_sessions_that_never_open_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "serve_app")
    noticed = Noticed()
    for _ in range(150):
        refused = noticed.begin()
        noticed.tell(refused, OpenRequested(), 0.0)
        noticed.tell(refused, OpenFailed(noticed.fence, AdmissionRefused("full")), 0.0)
        refused.ended("not_opened", now=0.0)
        left = noticed.begin()
        noticed.tell(left, OpenRequested(), 0.0)
        left.ended("client_close", now=0.0)
    assert messages(caplog) == ["session not opened", "session ended before it was open"]
    caplog.clear()
    noticed.records.bounded.flush(10.0)
    assert [vars(record)["count"] for record in caplog.records] == [149, 149]


ATTACHMENT = AttachmentId("att_2")
RESUMED = SessionResumed(SNAPSHOT, 2, "token")
TAKEN_OVER = AttachSocket(ATTACHMENT, RESUMED, 0, SessionReplaced(SNAPSHOT.fence, 1))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (TAKEN_OVER, "session taken over"),
        (AttachSocket(ATTACHMENT, RESUMED, 0, None), "session resumed"),
        (DetachSocket(ATTACHMENT), "client detached"),
    ],
)
def test_what_goes_on_all_the_time_is_a_line_of_its_session_in_ten_seconds(
    asked: Effect, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "serve_app")
    noticed = Noticed()
    one, other = noticed.begin(), noticed.begin()
    for tenth in range(110):
        noticed.tell(one, SocketLost(), tenth / 10, asked)
    noticed.tell(other, SocketLost(), 1.0, asked)
    one.ended("client_close", now=11.0)
    lines = [vars(record) for record in caplog.records[:-1]]
    assert [line.get("count") for line in lines] == [None, 99, None, 10]
    assert {line["message"] for line in lines} == {sentence}
    assert {line["session"] for line in lines} == {noticed.fence.session_id}


def test_the_same_trouble_over_and_over_is_a_line_in_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "serve_app")
    noticed = Noticed()
    record = noticed.begin()
    failed = UnitFailed(noticed.fence, 1, StageUnavailable("gone"))
    for _ in range(50):
        noticed.tell(record, failed, 0.0)
    record.ended("client_close", now=1.0)
    lines = [vars(record) for record in caplog.records[:-1]]
    assert [line.get("count") for line in lines] == [None, 49]
    assert {(line["levelname"], line["error_code"]) for line in lines} == {
        ("WARNING", failed.error.wire_code)
    }


async def test_every_stimulus_is_a_line_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "serve_app")
    async with Rig(answering(), config=config()) as rig:
        await rig.until(SessionCreated)
        rig.post(audio(1_000))
        await rig.until(ResponseFinished)
        await rig.close()
        handled = len(rig.session.handled)
    lines = [vars(record) for record in caplog.records if record.levelname == "DEBUG"]
    assert len(lines) == handled
    assert lines[0]["stimulus"] == "OpenRequested"
    assert lines[0]["effects"] == ("OpenStages",)
    assert {line["session"] for line in lines} == {"sess_1"}


# --- its size -----------------------------------------------------------------------------------


class Recorded:
    """Records an hour beside the kernel."""

    def __init__(self, most_entries: int) -> None:
        self._records = SessionRecords(most_entries=most_entries)
        self.record: SessionRecord | None = None

    def handle(self, session: DuplexSession, stimulus: Stimulus, now: float) -> list[Effect]:
        if self.record is None:
            self.record = self._records.begin(session.fence, CALLER, since_unix_s=0, now=now)
        handled = handle(session, stimulus, at_s=now, now=now)
        self.record.handled(handled)
        return list(handled.effects)


def test_a_story_stays_as_small_as_it_was() -> None:
    recorded = Recorded(most_entries=64)
    hour = SpokenHour(recorded.handle)
    hour.run(300)
    assert recorded.record is not None
    story = recorded.record.story
    early = size_of(story)
    hour.run(1_800)
    late = size_of(story)
    assert len(story.entries) == 64
    assert story.left_out == story.entries[0].number - 1 > 500
    assert late.objects <= early.objects * 1.1
    assert late.n_bytes <= early.n_bytes * 1.1
    assert late.n_bytes / len(story.entries) < 600
    assert story.answers == hour.answers


def test_a_story_goes_when_enough_others_have_ended() -> None:
    records = SessionRecords(most_entries=16, most_ended=2)
    session = SpokenHour().session
    for index in range(4):
        record = records.begin(session.fence, CALLER, since_unix_s=index, now=0.0)
        record.ended("client_close", now=float(index))
    assert [one.duration_s for one in records.ended()] == [3.0, 2.0]
