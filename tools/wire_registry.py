"""What there is on each dialect's wire, looked up in the code that reads and writes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final

from pydantic import BaseModel

from session.realtime import decode, server_events, session_events
from session.realtime.dialects import duplex_ga, internal
from session.realtime.live import client_events as live_client
from session.realtime.live import server_events as live_server
from session.realtime.openai import reader as openai_reader
from session.realtime.openai import server_events as openai_server
from session.realtime.session_events import ServerEvent
from tools.standard_events import (
    LIVE_CLIENT,
    LIVE_SERVER,
    REALTIME_CLIENT,
    REALTIME_SERVER,
    Standard,
)

ANSWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "session.update": ("session.created", "session.updated"),
    "session.resume": ("session.resumed", "session.resync_required"),
    "session.heartbeat": ("session.heartbeat_ack",),
    "session.close": ("session.closed",),
    "input_audio_buffer.commit": (
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.created",
        "conversation.item.done",
    ),
    "input.commit": (
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.created",
        "conversation.item.done",
    ),
    "input_audio_buffer.clear": ("input_audio_buffer.cleared",),
    "input.cancel": ("input_audio_buffer.cleared",),
    "conversation.item.create": (
        "conversation.item.added",
        "conversation.item.created",
        "conversation.item.done",
    ),
    "conversation.item.retrieve": ("conversation.item.retrieved",),
    "conversation.item.delete": ("conversation.item.deleted",),
    "conversation.item.truncate": ("conversation.item.truncated",),
    "response.create": ("response.created", "response.done"),
    "response.cancel": ("response.done",),
    "output_audio_buffer.clear": ("output_audio_buffer.cleared",),
    "barge_in": ("response.done",),
    "turn.signal": ("turn.event",),
    "playback.ack": ("playback.acknowledged",),
    "session.start": ("session.started",),
    "session.input_audio.mute": ("session.input_audio.muted",),
    "session.input_audio.unmute": ("session.input_audio.unmuted",),
    "session.instructions.append": ("session.instructions.appended",),
    "session.thinking.append": ("session.thinking.appended",),
    "session.commentary.append": ("session.commentary.appended",),
}
"""Server events that a client event brings about, an `error` aside. The others have no answer."""


@dataclass(frozen=True, slots=True)
class DialectPage:
    """One dialect, as its page shows it."""

    name: str
    """Of the page, and of the dialect in transcripts."""
    title: str
    endpoint: str
    for_whom: str
    prose: str
    """The page that explains this wire, from `docs/wire/`."""
    client: Mapping[str, type]
    """Model of each client event, by its type."""
    server: Mapping[str, type]
    """What each server event is made of, by its type."""
    is_explained_by_event: bool = False
    """That page has a section for each event, under the event's type."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Where else an event is explained, from `docs/wire/`."""
    client_page: str = ""
    """The page whose sections explain the client events; empty: this one."""
    server_page: str = ""
    """The same for the server events."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other types that a client may write, and what they mean."""
    client_standard: Standard = field(default_factory=lambda: REALTIME_CLIENT)
    server_standard: Standard = field(default_factory=lambda: REALTIME_SERVER)
    """What the published API has; empty where it has nothing like this wire."""
    answers: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: ANSWERS)
    """Server events that a client event brings about. Those that the dialect lacks do not count."""
    older_names: Mapping[str, str] = field(default_factory=dict)
    """Types that the standard had once, and what it calls them now."""
    notes: tuple[str, ...] = ()
    conversations: tuple[str, ...] = ()
    """Transcripts that are shown in full."""


def server_models(base: type[BaseModel], *modules: ModuleType) -> dict[str, type]:
    """Return the server events in some modules that come of `base`, by the type that they write."""
    found: dict[str, type] = {}
    for module in modules:
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, base):
                written = kind.model_fields["type"].default
                if isinstance(written, str):
                    found[written] = kind
    return found


_OLDER: Final = {new: old for old, new in duplex_ga.GA_NAMES.items()}
_DUPLEX_SERVER: Final = server_models(ServerEvent, session_events, server_events)

OPENAI: Final = DialectPage(
    name="openai",
    title="The OpenAI Realtime wire",
    endpoint="/v1/realtime",
    for_whom="clients of the OpenAI Realtime API and whatever is built on them, unchanged",
    prose="../openai.md",
    client=openai_reader.STANDARD_EVENTS,
    server=server_models(openai_server.OpenAIEvent, openai_server),
    answers={**ANSWERS, "session.update": ("session.updated",)},
    more={
        "session.update": "../openai.md#the-session",
        "response.create": "../openai.md#turns-and-answers",
        "error": "../openai.md#codes",
    },
    conversations=(
        "openai_greeting",
        "openai_server_vad",
        "openai_interrupted",
        "openai_text",
        "openai_text_only",
        "openai_manual",
        "openai_tool_call",
        "openai_truncate",
        "openai_cancelled",
        "openai_refused",
    ),
    notes=(
        "A client that sends an event of [the duplex wire](duplex.md) which the standard does not",
        "have is answered as there ([more](../openai.md#beyond-the-standard)), and nobody else.",
    ),
)
DUPLEX: Final = DialectPage(
    name="duplex",
    title="The duplex wire",
    endpoint="/v1/realtime?duplex=1",
    for_whom="clients that listen and speak at once, and want to know what the model decides",
    prose="../wire.md",
    is_explained_by_event=True,
    client=decode.CLIENT_EVENTS,
    server=_DUPLEX_SERVER,
    aliases=decode.ALIASES,
    older_names=duplex_ga.GA_NAMES,
    conversations=(
        "answer_two_units",
        "barge_in",
        "commit_turn_mode_create",
        "answer_text_only",
        "tool_call",
        "server_vad_barge_in",
        "resume_replay",
        "bad_events",
    ),
)
DUPLEX_GA: Final = DialectPage(
    name="duplex_ga",
    title="The duplex wire under newer names",
    endpoint="/v1/realtime?duplex=1&dialect=ga",
    for_whom="the same clients, where they know an answer's events by their newer names",
    prose="../wire.md",
    client_page="duplex",
    server_page="duplex",
    conversations=("duplex_ga_answer", "duplex_ga_text"),
    client=decode.CLIENT_EVENTS,
    server={
        duplex_ga.GA_NAMES.get(name, name): kind
        for name, kind in _DUPLEX_SERVER.items()
        if name not in duplex_ga.LEFT_OUT
    },
    aliases=decode.ALIASES,
    notes=(
        "Everything is as on [the duplex wire](duplex.md), field by field and in order, but for",
        "these names:",
        "",
        "| there | here |",
        "| --- | --- |",
        *(f"| `{old}` | `{new}` |" for old, new in duplex_ga.GA_NAMES.items()),
        *(f"| `{name}` | is left out |" for name in sorted(duplex_ga.LEFT_OUT)),
    ),
)
INTERNAL_ANSWERS: Final[Mapping[str, str]] = {
    "input_audio_buffer.committed": "input.committed",
    "input_audio_buffer.cleared": "input.cleared",
    "conversation.item.added": "item.added",
    "conversation.item.done": "item.done",
    "conversation.item.retrieved": "item.retrieved",
    "conversation.item.deleted": "item.deleted",
    "conversation.item.truncated": "item.truncated",
    "output_audio_buffer.cleared": "audio.cleared",
}
"""What the kernel calls some of them."""

INTERNAL: Final = DialectPage(
    name="internal",
    title="The kernel's own events",
    endpoint="/v1/duplex",
    for_whom="debugging, and tests of the session itself; it changes with the code",
    prose="../session.md",
    client_page="duplex",
    client=decode.CLIENT_EVENTS,
    server={name: kind for kind, name in internal.NAMES.items()},
    aliases=decode.ALIASES,
    client_standard={},
    server_standard={},
    answers={
        asked: tuple(INTERNAL_ANSWERS.get(name, name) for name in named)
        for asked, named in ANSWERS.items()
    },
    notes=(
        "What a client sends is the same as on [the duplex wire](duplex.md). The server's events",
        "are the classes of `session/events.py` and `session/socket_events.py`, field by field.",
        "Audio is 24 kHz PCM16. The recording of a voice (`ref_audio`) is always empty here.",
    ),
)

_LIVE_TIMED: Final = {
    "session.instructions.appended": live_server.ContextAppended,
    "session.thinking.appended": live_server.ContextAppended,
    "session.commentary.appended": live_server.ContextAppended,
    "session.input_transcript.delta": live_server.TranscriptDelta,
    "session.output_transcript.delta": live_server.TranscriptDelta,
}
LIVE: Final = DialectPage(
    name="live",
    title="The live wire",
    endpoint="/v1/live/sessions",
    for_whom="GPT-Live clients: they stream without pause, and there are no turns",
    prose="../live.md",
    client={
        "session.start": live_client.SessionStart,
        "session.input_audio.append": live_client.InputAudioAppend,
        **live_client.COMMANDS,
    },
    server={**server_models(live_server.LiveEvent, live_server), **_LIVE_TIMED},
    client_standard=LIVE_CLIENT,
    server_standard=LIVE_SERVER,
    answers={
        "session.start": ("session.started",),
        "session.update": ("session.updated",),
        "session.close": ("session.closed",),
        "session.input_audio.mute": ("session.input_audio.muted",),
        "session.input_audio.unmute": ("session.input_audio.unmuted",),
        "session.instructions.append": ("session.instructions.appended",),
        "session.thinking.append": ("session.thinking.appended",),
        "session.commentary.append": ("session.commentary.appended",),
    },
    conversations=(
        "live_conversation",
        "live_interrupted",
        "live_context",
        "live_close",
        "live_requests",
        "live_refused",
    ),
)

PAGES: Final = (OPENAI, LIVE, DUPLEX, DUPLEX_GA, INTERNAL)
"""Every dialect, in the order of the index."""


def section_of(page: DialectPage, side: str, name: str) -> str:
    """Return where an event is explained, as a link from a page in the same folder."""
    if side == "client":
        return f"{page.client_page and page.client_page + '.md'}#{anchor(side, name)}"
    there = _OLDER.get(name, name) if page.server_page else name
    return f"{page.server_page and page.server_page + '.md'}#{anchor(side, there)}"


def explanation_of(page: DialectPage, name: str) -> str:
    """Return where an event is explained in prose, as a link; empty where it is not."""
    if page.is_explained_by_event:
        return f"{page.prose}#{name.replace('.', '')}"
    return page.more.get(name, "")


def anchor(side: str, name: str) -> str:
    """Return the anchor of an event's heading."""
    return f"{side}-{name}".replace(".", "")


def answers(page: DialectPage, client_event: str) -> list[str]:
    """Return the server events of a dialect that a client event brings about."""
    return [name for name in page.answers.get(client_event, ()) if name in page.server]
