"""The log lines of one session: its begin, its sockets, its troubles, its end.

Rule 1: what clients cause at their own pace, over and over, is bounded: for what never gets its
        stages in the gateway's bounded log, and for a session that has them in one of its own.
Rule 2: a line about a session names it by its fence; what happened in it is counted.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from serve_app.handled import Handled
from serve_app.logs.bounded_log import BoundedLog, Line
from serve_app.logs.log_lines import Facts, say, trouble
from serve_app.logs.session_story import SessionStory
from serve_app.logs.story_entries import known_end
from session.effects import AttachSocket, DetachSocket, RefuseSocket
from session.errors import ClientError, DuplexError
from session.socket_events import ResyncRequired
from session.stimuli import (
    ConfigureFailed,
    OpenFailed,
    ReleaseFailed,
    SpeechFailed,
    StageLost,
    StagesOpened,
    UnitFailed,
)

log = logging.getLogger(__name__)

NOT_OPENED: Final = "not_opened"
TROUBLES: Final[Mapping[type, str]] = {
    UnitFailed: "a unit failed",
    SpeechFailed: "speech failed",
    ConfigureFailed: "new settings were refused",
    ReleaseFailed: "the stages did not confirm the release",
    StageLost: "a stage is lost",
}
AboutSockets = AttachSocket | DetachSocket | RefuseSocket
ABOUT_SOCKETS: Final = (AttachSocket, DetachSocket, RefuseSocket)
Noted = (
    StagesOpened
    | OpenFailed
    | StageLost
    | UnitFailed
    | SpeechFailed
    | ConfigureFailed
    | ReleaseFailed
)
NOTED: Final = (
    *(StagesOpened, OpenFailed, StageLost),
    *(UnitFailed, SpeechFailed, ConfigureFailed, ReleaseFailed),
)


@dataclass(slots=True)
class SessionNotices:
    """Writes what an operator shall read of a session."""

    story: SessionStory
    bounded: BoundedLog
    """The gateway's."""
    own: BoundedLog = field(default_factory=BoundedLog)
    _is_begun: bool = False

    def handled(self, handled: Handled) -> None:
        """The kernel has handled a stimulus."""
        told, now = handled.told, handled.now
        self.own.flush(now, self.story.fence)
        if not handled.is_stale and isinstance(told, NOTED):
            self._note(told, now)
        for effect in handled.effects:
            if isinstance(effect, ABOUT_SOCKETS):
                self._note_socket(effect, now)

    def ended(self, reason: str, *, now: float) -> None:
        """The session is over, and nothing of it goes on."""
        self.own.flush(math.inf, self.story.fence)
        facts = replace(self._caller(), reason=known_end(reason))
        if facts.reason == NOT_OPENED:
            return  # it was told why
        if not self._is_begun:
            self.bounded.write(Line("session ended before it was open", facts), now=now)
            return
        whole = replace(
            facts,
            duration_s=round(now - self.story.began_s, 3),
            units=self.story.units,
            answers=self.story.answers,
        )
        say(log, logging.INFO, "session ended", self.story.fence, whole)

    def broke(self, error: BaseException) -> None:
        """A fault of ours ends the session."""
        facts = replace(self._caller(), story=self.story.lines())
        say(log, logging.ERROR, "session broke", self.story.fence, facts, error=error)

    def _note(self, told: Noted, now: float) -> None:
        match told:
            case StagesOpened():
                self._begin(now)
            case OpenFailed(error=error):
                self._refuse("session not opened", error, now)
            case StageLost(stage=stage, error=error):
                self._trouble(told, error, stage, now)
            case UnitFailed(error=error):
                self._trouble(told, error, "stage0", now)
            case SpeechFailed(error=error):
                self._trouble(told, error, "stage1", now)
            case ConfigureFailed(error=error) | ReleaseFailed(error=error):
                self._trouble(told, error, None, now)
            case _:
                assert_never(told)

    def _note_socket(self, effect: AboutSockets, now: float) -> None:
        match effect:
            case AttachSocket(replaced=None):
                self._say(Line("session resumed", self._caller()), now)
            case AttachSocket():
                self._say(Line("session taken over", self._caller()), now)
            case DetachSocket(close=close):
                reason = "socket lost" if close is None else close.reason
                self._say(Line("client detached", replace(self._caller(), reason=reason)), now)
            case RefuseSocket(answer=answer):
                self._refuse_socket(answer, now)

    def _refuse_socket(self, answer: ClientError | ResyncRequired, now: float) -> None:
        if isinstance(answer, ResyncRequired):
            facts = replace(self._caller(), reason=answer.reason)
            self.bounded.write(Line("resume needs a resync", facts), now=now)
        else:
            self._refuse("resume refused", answer, now)

    def _refuse(self, sentence: str, error: DuplexError, now: float) -> None:
        found = trouble(error)
        facts = replace(self._caller(), error=found.error, error_code=found.error_code)
        self.bounded.write(Line(sentence, facts), now=now)

    def _trouble(self, told: Noted, error: DuplexError, stage: str | None, now: float) -> None:
        level = logging.INFO if isinstance(error, ClientError) else logging.WARNING
        facts = replace(trouble(error, stage=stage), principal=self.story.caller.principal)
        self._say(Line(TROUBLES[type(told)], facts, level), now)

    def _begin(self, now: float) -> None:
        self._is_begun = True
        facts = replace(self._caller(), duration_s=round(now - self.story.began_s, 3))
        at = self.story.replicas
        if at is not None:
            facts = replace(facts, stage0_replica=at.stage0, stage1_replica=at.stage1)
        say(log, logging.INFO, "session begun", self.story.fence, facts)

    def _caller(self) -> Facts:
        caller = self.story.caller
        return Facts(dialect=caller.dialect, principal=caller.principal)

    def _say(self, line: Line, now: float) -> None:
        self.own.write(line, now=now, fence=self.story.fence)
