"""The duplex wire with the names of newer releases: `/v1/realtime?duplex=1&dialect=ga`.

The same events with the same fields in the same order. Six of them have their newer name, and
`conversation.item.created`, which there is `conversation.item.added` alone, is left out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from session import events as kernel
from session.realtime.dialects.audio_pieces import Encode
from session.realtime.dialects.duplex import DuplexProjector
from session.realtime.facts import ServerFacts
from session.realtime.session_events import ServerEvent

GA_NAMES: Final[Mapping[str, str]] = {
    "response.audio.delta": "response.output_audio.delta",
    "response.audio.done": "response.output_audio.done",
    "response.audio_transcript.delta": "response.output_audio_transcript.delta",
    "response.audio_transcript.done": "response.output_audio_transcript.done",
    "response.text.delta": "response.output_text.delta",
    "response.text.done": "response.output_text.done",
}
"""Newer names of events."""
LEFT_OUT: Final = frozenset({"conversation.item.created"})
"""Events that the newer names do not have."""


@dataclass(frozen=True, slots=True)
class RenamedEvent:
    """A wire event under another name."""

    event: ServerEvent
    name: str

    @property
    def is_journaled(self) -> bool:
        """As the event itself."""
        return self.event.is_journaled

    def to_text(self, event_id: str, server_event_seq: int | None = None) -> str:
        """Return the JSON text of the frame."""
        head, tail = f'{{"type":"{self.event.type}"', self.event.to_text(event_id, server_event_seq)
        return f'{{"type":"{self.name}"{tail.removeprefix(head)}'


class DuplexGaProjector:
    """The duplex projector under newer names."""

    def __init__(self, *, facts: ServerFacts, encode: Encode) -> None:
        self._project: Callable[[kernel.Event], list[ServerEvent]]
        self._project = DuplexProjector(facts=facts, encode=encode).project

    def project(self, event: kernel.Event) -> list[ServerEvent | RenamedEvent]:
        """Return the event's wire events in order."""
        return list(self._renamed(event))

    def _renamed(self, event: kernel.Event) -> Iterator[ServerEvent | RenamedEvent]:
        for sent in self._project(event):
            if sent.type in LEFT_OUT:
                continue
            name = GA_NAMES.get(sent.type)
            yield sent if name is None else RenamedEvent(sent, name)
