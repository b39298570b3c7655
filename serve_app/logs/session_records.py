"""What is kept and written of sessions: each one's story and log lines, and who ended lately.

Rule 1: recorded here, after the kernel has handled a stimulus, and nowhere in the kernel.
Rule 2: a story is kept as long as its session, then until so many others have ended. That of a
        session which was refused is not: a client that tries on would push all others out.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from serve_app.handled import Handled, told_by
from serve_app.logs.bounded_log import BoundedLog
from serve_app.logs.session_notices import NOT_OPENED, SessionNotices
from serve_app.logs.session_story import Caller, SessionStory
from serve_app.logs.story_entries import known_end
from serve_app.ports import Replicas
from session.fence import Fence
from session.stimuli import Stimulus

ENTRIES: Final = 256
ENDED: Final = 100


@dataclass(frozen=True, slots=True)
class EndedStory:
    """A story that goes on no more."""

    story: SessionStory
    reason: str
    duration_s: float


@dataclass(slots=True)
class SessionRecord:
    """Told by a session's actor what happens in it."""

    story: SessionStory
    notices: SessionNotices
    ended_stories: deque[EndedStory]

    def handled(self, handled: Handled) -> None:
        """The kernel has handled a stimulus."""
        self.story.handled(handled)
        self.notices.handled(handled)

    def held_by(self, replicas: Replicas) -> None:
        """Both stages are open, at these replicas."""
        self.story.replicas = replicas

    def broke_at(self, stimulus: Stimulus, *, now: float) -> None:
        """The session can not go on after this stimulus."""
        self.story.broke(told_by(stimulus), now=now)

    def broke(self, error: BaseException) -> None:
        """A fault of ours ends the session."""
        self.notices.broke(error)

    def ended(self, reason: str, *, now: float) -> None:
        """The session is over, and nothing of it goes on."""
        self.story.end()
        self.notices.ended(reason, now=now)
        if reason == NOT_OPENED:
            return
        duration_s = now - self.story.began_s
        self.ended_stories.append(EndedStory(self.story, known_end(reason), duration_s))


class SessionRecords:
    """Those of one gateway."""

    def __init__(self, *, most_entries: int = ENTRIES, most_ended: int = ENDED) -> None:
        self.bounded = BoundedLog()
        self.most_ended = most_ended
        self._most_entries = most_entries
        self._ended: deque[EndedStory] = deque(maxlen=most_ended)

    def begin(
        self, fence: Fence, caller: Caller, *, since_unix_s: int, now: float
    ) -> SessionRecord:
        """Return the record of a session that begins."""
        story = SessionStory(fence, caller, since_unix_s, now, self._most_entries)
        return SessionRecord(story, SessionNotices(story, self.bounded), self._ended)

    def ended(self) -> Iterator[EndedStory]:
        """Return the sessions that have ended, the latest first."""
        return reversed(self._ended)
