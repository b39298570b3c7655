"""What an operator is shown of sessions, as JSON."""

from datetime import UTC, datetime

from pydantic import BaseModel

from serve_app.logs.session_records import EndedStory
from serve_app.logs.session_story import SessionStory, StoryEntry

ENDED: str = "ended"


class SessionView(BaseModel):
    """One session, in numbers."""

    id: str
    dialect: str
    principal: str | None
    """Name of the client's key."""
    state: str
    """opening, active, detached, closing or ended."""
    began_at: str
    """In UTC."""
    duration_s: float
    """Until now, or until its end."""
    incarnation: int
    epoch: int
    turn: int
    units: int
    """Given to Stage0."""
    answers: int
    stage0_replica: str | None
    stage1_replica: str | None
    end_reason: str | None


class SessionsView(BaseModel):
    """The sessions of one gateway, the latest first."""

    open: list[SessionView]
    ended: list[SessionView]
    """The last that ended."""


class EntryView(BaseModel):
    """One entry of a story."""

    number: int
    stimulus: str
    times: int
    first_s: float
    """Since the session began."""
    last_s: float
    incarnation: int
    epoch: int
    turn: int
    is_stale: bool
    words: list[str]
    """Decisions, reasons and codes."""
    effects: list[str]
    response_id: str | None
    unit: int | None
    audio_ms: int
    characters: int
    images: int


class StoryView(BaseModel):
    """The story of one session."""

    session: SessionView
    left_out: int
    """Earlier entries that are not shown."""
    entries: list[EntryView]


def open_view(story: SessionStory, state: str, *, now: float) -> SessionView:
    """Show a session that goes on."""
    return _session(story, state, now - story.began_s, None)


def ended_view(ended: EndedStory) -> SessionView:
    """Show a session that is over."""
    return _session(ended.story, ENDED, ended.duration_s, ended.reason)


def story_view(session: SessionView, story: SessionStory, limit: int) -> StoryView:
    """Show the latest entries of a story."""
    shown = list(story.entries)[-limit:]
    left_out = story.left_out + len(story.entries) - len(shown)
    return StoryView(session=session, left_out=left_out, entries=[_entry(one) for one in shown])


def _session(
    story: SessionStory, state: str, duration_s: float, end_reason: str | None
) -> SessionView:
    at = story.replicas
    began = datetime.fromtimestamp(story.since_unix_s, UTC)
    return SessionView(
        id=story.fence.session_id,
        dialect=story.caller.dialect,
        principal=story.caller.principal,
        state=state,
        began_at=began.isoformat().replace("+00:00", "Z"),
        duration_s=round(duration_s, 3),
        incarnation=story.fence.incarnation,
        epoch=story.fence.epoch,
        turn=story.fence.turn,
        units=story.units,
        answers=story.answers,
        stage0_replica=None if at is None else at.stage0,
        stage1_replica=None if at is None else at.stage1,
        end_reason=end_reason,
    )


def _entry(entry: StoryEntry) -> EntryView:
    return EntryView(
        number=entry.number,
        stimulus=entry.stimulus,
        times=entry.times,
        first_s=round(entry.first_s, 3),
        last_s=round(entry.last_s, 3),
        incarnation=entry.incarnation,
        epoch=entry.epoch,
        turn=entry.turn,
        is_stale=entry.is_stale,
        words=list(entry.words),
        effects=list(entry.effects),
        response_id=entry.response_id,
        unit=entry.unit,
        audio_ms=entry.audio_ms,
        characters=entry.characters,
        images=entry.images,
    )
