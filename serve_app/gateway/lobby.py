"""A socket that has no session yet: what it is told, and the settings that it may begin with.

Rule 1: nothing here begins a session; the connection does.
Rule 2: a socket has until one moment to begin a session, however often it waits for that moment.
Rule 3: a drain's deadline is the end of that time too, also of a drain that begins in the meantime.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from serve_app.clock import Timer
from serve_app.logs.bounded_log import Line
from serve_app.logs.log_lines import Facts, trouble
from serve_app.metrics.meter import count_error
from serve_app.sessions.session_host import SessionHost
from session.config import SessionConfig
from session.effects import Emit
from session.errors import (
    ClientError,
    DuplexError,
    MalformedEvent,
    ServerDraining,
    UnsupportedOption,
)
from session.events import ErrorRaised, Event, SessionCreated
from session.fence import Fence
from session.fitting import fitted
from session.ids import AttachmentId
from session.lifecycle import Life, TurnState
from session.model_profile import ModelProfile
from session.realtime.opening import Opening
from session.snapshot import Playback, SessionSnapshot
from session.stimuli import SessionConfigured

DRAINING_TEXT: Final = (
    "this server takes no new sessions, because it is about to go away: connect again in a moment, "
    "another one may answer"
)


class Lobby:
    """Where one socket is until it has a session."""

    def __init__(self, host: SessionHost, attachment: AttachmentId, opening: Opening) -> None:
        self._host = host
        self._session_id = opening.session_id
        self._clock = host.world.clock
        self.outbound = host.lobby(attachment, opening)
        self._until_s = self._clock.now() + host.world.limits.config_timeout_s
        self._timer: Timer | None = None
        self._time_is_up: Callable[[], None] | None = None

    def greet(self) -> None:
        """Tell the client of its session. Its first event opens the stages, with its settings."""
        fence = Fence(self._session_id, incarnation=0, epoch=0, turn=0)
        opening, idle = Life.OPENING.value, TurnState.IDLE.value
        self.put(
            SessionCreated(SessionSnapshot(fence, opening, idle, self._host.defaults, Playback()))
        )

    def fit(self, configured: SessionConfigured) -> SessionConfig | ClientError:
        """Return the settings that a session begins with, or why none can begin with them."""
        profile = self._host.world.directory.descriptor.profile
        # Which model runs is the deployment's business; the session says the truth about it.
        model = self._host.defaults.model
        config = replace(configured.patch.apply_to(self._host.defaults), model=model)
        if configured.is_lenient:
            config = fitted(config, None, profile)
        return _refusal(config, profile) or config

    def say(self, error: DuplexError, event_id: str | None) -> None:
        """Say what is wrong while there is no session."""
        count_error(self._host.world.meter, error)
        host, found = self._host, trouble(error)
        facts = Facts(
            dialect=host.kit.dialect.value,
            principal=host.owner.name,
            error=found.error,
            error_code=found.error_code,
        )
        line = Line("refused before there is a session", facts)
        host.world.records.bounded.write(line, now=self._clock.now())
        self.put(ErrorRaised(error, event_id))

    def say_time_is_up(self) -> None:
        """Say that the client had to begin a session and did not."""
        first_event, limit_s = self._host.kit.first_event, self._host.world.limits.config_timeout_s
        self.say(
            MalformedEvent(f"no {first_event} came within {limit_s:g} s", code="config_timeout"),
            None,
        )

    def say_draining(self, event_id: str | None) -> None:
        """Say that no session begins here any more."""
        self.say(ServerDraining(DRAINING_TEXT), event_id)

    def put(self, event: Event) -> None:
        """Send an event while there is no session."""
        self.outbound.perform(Emit(event), at_s=self._clock.now())

    def wait(self, call: Callable[[], None]) -> None:
        """Call when the client's time to begin a session is up."""
        self._time_is_up = call
        self._host.sessions.tell_of_drains(self._set_timer)
        self._set_timer()

    def stop_waiting(self) -> None:
        """Give the client all the time it needs."""
        self._host.sessions.tell_no_more(self._set_timer)
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._time_is_up is not None:
            drain_until_s = self._host.sessions.drain_until_s
            until_s = self._until_s if drain_until_s is None else min(self._until_s, drain_until_s)
            self._timer = self._clock.call_at(until_s, self._time_is_up)


def _refusal(config: SessionConfig, profile: ModelProfile) -> ClientError | None:
    if config.conflict:
        return UnsupportedOption(config.conflict, param="session.overlap_policy")
    if config.tools_fault is not None and profile.tools:
        return config.tools_fault.error()
    if config.opening_messages and not profile.messages:
        return UnsupportedOption(
            f"{config.model} can not be told what was said before; leave session.input out",
            code="unsupported_session_input",
            param="session.input",
        )
    return None
