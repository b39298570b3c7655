"""The laws of a whole conversation on `/v1/realtime`: what comes once, what comes before what.

Rule 1: the session comes first, and every event has an id of its own.
Rule 2: an answer is a tree: answer, items, parts, deltas. What closes was open, a parent closes
        after its children, and nothing follows what is closed.
Rule 3: the whole says what its pieces said: a transcript is its deltas joined.
Rule 4: input is committed before it becomes an item, and is an item before it has words.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tests.support.openai_types import read_frame, realtime_faults, sound_faults

Json = dict[str, Any]
PCM_BYTES_A_MS: Final = 48
"""24 kHz PCM16."""
G711_BYTES_A_MS: Final = 8


@dataclass(slots=True)
class _Part:
    kind: str
    texts: list[str] = field(default_factory=list)
    sound_bytes: int = 0
    closed: set[str] = field(default_factory=set)
    """Which of its streams have said done, and `part` for itself."""


@dataclass(slots=True)
class _Item:
    id: str
    kind: str
    parts: list[_Part] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    closed_arguments: str | None = None
    is_done: bool = False


@dataclass(slots=True)
class _Answer:
    id: str
    metadata: Json | None
    is_aside: bool
    """Out of band: in no conversation."""
    sounds_as: str
    """Its own format: the session's may be another, and may change meanwhile."""
    items: list[_Item] = field(default_factory=list)
    is_done: bool = False


@dataclass(slots=True)
class _Input:
    """A piece of the user's sound, from its onset or its commit on."""

    is_committed: bool = False
    words: list[str] = field(default_factory=list)
    is_worded: bool = False


class RealtimeLog:
    """Reads one socket's frames in order and notes every fault."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.events: list[Json] = []
        self._ids: set[str] = set()
        self._session: Json | None = None
        self._items: dict[str, bool] = {}
        """The conversation's items, and whether each is done."""
        self._deleted: set[str] = set()
        self._answers: dict[str, _Answer] = {}
        self._inputs: dict[str, _Input] = {}
        self._speaking: str | None = None
        self._sound_ms: dict[str, float] = {}
        """Of each spoken item of the assistant; one that ended before its sound has none."""
        self._conversation_id: str | None = None
        self._readers = self._all_readers()

    def hear(self, frame: str) -> None:
        """Take the next frame."""
        faults = realtime_faults(frame)
        self.faults += faults
        if not faults:
            self._read(read_frame(frame))

    def end(self) -> None:
        """Say that the conversation is over and nothing was cut off: all that began has ended."""
        open_answers = [answer.id for answer in self._answers.values() if not answer.is_done]
        self._note(not open_answers, f"answers without an end: {open_answers}")
        self._note(self._speaking is None, "speech that started and never stopped")
        undone = [item for item, is_done in self._items.items() if not is_done]
        self._note(not undone, f"items without an end: {undone}")

    def of(self, *kinds: str) -> list[Json]:
        """Return the events of these types so far."""
        return [event for event in self.events if event["type"] in kinds]

    def _read(self, event: Json) -> None:
        kind = event["type"]
        self._note(event["event_id"] not in self._ids, f"{kind}: its event_id came before")
        self._ids.add(event["event_id"])
        is_opening = kind in ("session.created", "error")
        self._note(self._session is not None or is_opening, f"{kind} before session.created")
        self.events.append(event)
        reader = self._readers.get(kind)
        if reader is not None:
            reader(event)

    def _note(self, is_right: object, fault: str) -> None:
        if not is_right:
            self.faults.append(f"event {len(self.events)}: {fault}")

    def _all_readers(self) -> dict[str, Callable[[Json], None]]:
        words = "conversation.item.input_audio_transcription"
        return {
            "session.created": self._session_created,
            "session.updated": self._session_is,
            "rate_limits.updated": self._rate_limits,
            "conversation.item.added": self._item_added,
            "conversation.item.done": self._item_done,
            "conversation.item.deleted": self._item_deleted,
            "conversation.item.retrieved": self._item_retrieved,
            "conversation.item.truncated": self._item_truncated,
            "input_audio_buffer.speech_started": self._speech_started,
            "input_audio_buffer.speech_stopped": self._speech_stopped,
            "input_audio_buffer.committed": self._committed,
            **dict.fromkeys(
                (f"{words}.delta", f"{words}.completed", f"{words}.failed"), self._worded
            ),
            "response.created": self._created,
            "response.done": self._done,
            "response.output_item.added": self._output_added,
            "response.output_item.done": self._output_done,
            "response.content_part.added": self._part_added,
            "response.content_part.done": self._part_done,
            "response.output_audio.delta": partial(self._delta, stream="audio"),
            "response.output_audio_transcript.delta": partial(self._delta, stream="transcript"),
            "response.output_text.delta": partial(self._delta, stream="text"),
            "response.output_audio.done": partial(self._stream_done, stream="audio"),
            "response.output_audio_transcript.done": partial(
                self._stream_done, stream="transcript"
            ),
            "response.output_text.done": partial(self._stream_done, stream="text"),
            "response.function_call_arguments.delta": self._arguments,
            "response.function_call_arguments.done": self._arguments,
        }

    # --- session ------------------------------------------------------------------------------

    def _session_created(self, event: Json) -> None:
        self._note(self._session is None, "a second session.created")
        self._session_is(event)

    def _session_is(self, event: Json) -> None:
        self._session = event["session"]
        self._note(event["session"].get("audio"), "a session without its audio settings")

    def _is_pcm(self, answer_id: str) -> bool:
        answer = self._answers.get(answer_id)
        return answer is None or answer.sounds_as == "audio/pcm"

    def _rate_limits(self, event: Json) -> None:
        is_within = any(not answer.is_done for answer in self._answers.values())
        self._note(is_within, f"{event['type']} outside of an answer")

    # --- the conversation's items -------------------------------------------------------------

    def _item_added(self, event: Json) -> None:
        item = event["item"]
        self._note(item.get("id"), "an item without an id")
        self._note(item.get("status"), "an item without a status")
        item_id = str(item.get("id"))
        self._note(item_id not in self._items, f"{item_id} is added twice")
        before = event.get("previous_item_id")
        self._note(before is None or before in self._items, f"after an unknown item {before}")
        self._items[item_id] = False

    def _item_done(self, event: Json) -> None:
        item_id = event["item"].get("id")
        self._note(self._items.get(item_id) is False, f"{item_id} is done, and was not open")
        self._note(event["item"].get("status") != "in_progress", f"{item_id} is done in progress")
        self._items[item_id] = True

    def _item_deleted(self, event: Json) -> None:
        self._note(self._items.pop(event["item_id"], None) is not None, "deletes an unknown item")
        self._deleted.add(event["item_id"])

    def _item_retrieved(self, event: Json) -> None:
        self._note(event["item"].get("id") in self._items, "retrieves an unknown item")

    def _item_truncated(self, event: Json) -> None:
        item_id = event["item_id"]
        is_spoken = item_id in self._sound_ms
        self._note(is_spoken, f"truncates {item_id}, which is not spoken by the assistant")
        sound_ms = self._sound_ms.get(item_id, 0.0)
        longest_ms = math.ceil(round(sound_ms, 6))
        end_ms = event["audio_end_ms"]
        self._note(0 <= end_ms <= longest_ms, f"cut at {end_ms} ms of {longest_ms}")

    # --- the user's sound ---------------------------------------------------------------------

    def _speech_started(self, event: Json) -> None:
        self._note(self._speaking is None, "speech starts within speech")
        self._note(event["audio_start_ms"] >= 0, "speech starts before the session")
        self._speaking = event["item_id"]
        self._inputs.setdefault(event["item_id"], _Input())

    def _speech_stopped(self, event: Json) -> None:
        self._note(self._speaking == event["item_id"], "other speech stops than started")
        starts = self.of("input_audio_buffer.speech_started")
        last_ms = starts[-1]["audio_start_ms"] if starts else 0
        self._note(event["audio_end_ms"] >= last_ms, "speech stops before it started")
        self._speaking = None

    def _committed(self, event: Json) -> None:
        user = self._inputs.setdefault(event["item_id"], _Input())
        self._note(not user.is_committed, f"{event['item_id']} is committed twice")
        self._note(event["item_id"] not in self._items, "committed after it was added")
        user.is_committed = True

    def _worded(self, event: Json) -> None:
        user = self._inputs.get(event["item_id"])
        self._note(user is not None and user.is_committed, "words of input that is not committed")
        is_item = event["item_id"] in self._items or event["item_id"] in self._deleted
        self._note(is_item, "words of an item that was not added")
        if user is None:
            return
        self._note(not user.is_worded, f"more words of {event['item_id']} after its last")
        if event["type"].endswith(".delta"):
            user.words.append(event.get("delta") or "")
            return
        user.is_worded = True
        if event["type"].endswith(".completed") and user.words:
            self._note("".join(user.words) == event["transcript"], "words unlike their deltas")

    # --- answers ------------------------------------------------------------------------------

    def _created(self, event: Json) -> None:
        response = event["response"]
        sound = ((response.get("audio") or {}).get("output") or {}).get("format") or {}
        self._note(sound, "an answer without its audio format")
        answer = _Answer(
            str(response.get("id")),
            response.get("metadata"),
            is_aside=response.get("conversation_id") is None,
            sounds_as=str(sound.get("type")),
        )
        self._note(answer.id not in self._answers, f"{answer.id} is created twice")
        self._note(response.get("status") == "in_progress", "created, and not in progress")
        self._note(response.get("output") == [], "created with output")
        if not answer.is_aside:
            self._conversation_id = self._conversation_id or response["conversation_id"]
            same = response["conversation_id"] == self._conversation_id
            self._note(same, "an answer in another conversation")
        others = [a for a in self._answers.values() if not (a.is_done or a.is_aside)]
        self._note(answer.is_aside or not others, "an answer within another")
        self._answers[answer.id] = answer

    def _done(self, event: Json) -> None:
        response = event["response"]
        answer = self._answers.get(str(response.get("id")))
        self._note(answer is not None and not answer.is_done, "the end of no open answer")
        if answer is None:
            return
        answer.is_done = True
        self._note(all(item.is_done for item in answer.items), "an answer ends before its items")
        ids = [item.get("id") for item in response.get("output") or []]
        self._note(ids == [item.id for item in answer.items], "other items than were added")
        self._note(response.get("metadata") == answer.metadata, "other metadata than created")
        status = response.get("status")
        self._note(status not in (None, "in_progress"), f"an end with status {status}")
        details = response.get("status_details") or {}
        self._note(details.get("type", status) == status, "details of another status")
        if status in ("cancelled", "incomplete"):
            self._note(details.get("reason"), f"{status} without a reason")
        usage = response.get("usage") or {}
        total = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        self._note(usage.get("total_tokens", 0) == total, "usage that does not add up")
        self._note(status != "completed" or usage, "completed without usage")

    def _open_answer(self, event: Json) -> _Answer | None:
        answer = self._answers.get(event["response_id"])
        is_open = answer is not None and not answer.is_done
        self._note(is_open, f"{event['type']} of no open answer")
        return answer if is_open else None

    def _open_item(self, event: Json) -> _Item | None:
        answer = self._open_answer(event)
        if answer is None:
            return None
        index = event["output_index"]
        if not 0 <= index < len(answer.items):
            self._note(False, f"{event['type']}: no item at {index}")
            return None
        item = answer.items[index]
        self._note(item.id == event["item_id"], f"{event['type']}: another item at {index}")
        self._note(not item.is_done, f"{event['type']} after its item was done")
        self._note(answer.is_aside or item.id in self._items, f"{item.id} is in no conversation")
        return item

    def _open_part(self, event: Json) -> _Part | None:
        item = self._open_item(event)
        if item is None:
            return None
        index = event["content_index"]
        if not 0 <= index < len(item.parts):
            self._note(False, f"{event['type']}: no part at {index}")
            return None
        part = item.parts[index]
        self._note("part" not in part.closed, f"{event['type']} after its part was done")
        return part

    def _output_added(self, event: Json) -> None:
        answer = self._open_answer(event)
        if answer is None:
            return
        item = event["item"]
        at = event["output_index"]
        self._note(at == len(answer.items), f"an item at {at}, and not in its turn")
        self._note(item.get("id"), "an output item without an id")
        self._note(item.get("status") == "in_progress", "an item begins, and not in progress")
        known = {item.id for a in self._answers.values() for item in a.items}
        self._note(item.get("id") not in known, f"{item.get('id')} is put out twice")
        answer.items.append(_Item(str(item.get("id")), item["type"]))

    def _output_done(self, event: Json) -> None:
        item = self._open_item({**event, "item_id": event["item"].get("id")})
        if item is None:
            return
        written = event["item"]
        self._note(all("part" in part.closed for part in item.parts), "an item ends before a part")
        self._note(written["type"] == item.kind, "an item changes its type")
        self._note(written.get("status") != "in_progress", "an item ends in progress")
        if item.kind == "function_call":
            self._note(written["arguments"] == item.closed_arguments, "other arguments")
            self._note(written.get("call_id"), "a call without call_id")
        for part, content in zip(item.parts, written.get("content") or [], strict=False):
            words = content.get("text") or content.get("transcript") or ""
            # What was cut short says less: what was heard.
            self._note("".join(part.texts).startswith(words), "an item says what was not sent")
        item.is_done = True

    def _part_added(self, event: Json) -> None:
        item = self._open_item(event)
        if item is None:
            return
        at = event["content_index"]
        self._note(at == len(item.parts), f"a part at {at}, and not in its turn")
        self._note(event["part"].get("type"), "a part without a type")
        item.parts.append(_Part(str(event["part"].get("type"))))
        if event["part"].get("type") == "audio":
            self._sound_ms.setdefault(item.id, 0.0)

    def _part_done(self, event: Json) -> None:
        part = self._open_part(event)
        if part is None:
            return
        wanted = {"text"} if part.kind == "text" else {"audio", "transcript"}
        begun = {"audio"} if part.sound_bytes else set()
        begun |= {"transcript" if part.kind == "audio" else "text"} if part.texts else set()
        self._note(begun <= part.closed, f"a part ends before its {sorted(begun - part.closed)}")
        self._note(part.closed <= wanted, f"a part of {part.kind} with {sorted(part.closed)}")
        self._note(event["part"].get("type") == part.kind, "a part changes its type")
        words = event["part"].get("text" if part.kind == "text" else "transcript") or ""
        self._note(words == "".join(part.texts), "a part says other words than its deltas")
        part.closed.add("part")

    def _delta(self, event: Json, stream: str) -> None:
        part = self._open_part(event)
        if part is None:
            return
        kind = "text" if stream == "text" else "audio"
        self._note(part.kind == kind, f"{event['type']} in a part of {part.kind}")
        self._note(stream not in part.closed, f"{event['type']} after its end")
        if stream != "audio":
            self._note(event["delta"], f"{event['type']} of no length")
            part.texts.append(event["delta"])
            return
        is_pcm = self._is_pcm(str(event["response_id"]))
        for fault in sound_faults(event["delta"], is_pcm=is_pcm):
            self._note(False, fault)
        n_bytes = len(event["delta"].rstrip("=")) * 3 // 4
        part.sound_bytes += n_bytes
        sound_ms = n_bytes / (PCM_BYTES_A_MS if is_pcm else G711_BYTES_A_MS)
        self._sound_ms[event["item_id"]] = self._sound_ms.get(event["item_id"], 0.0) + sound_ms

    def _stream_done(self, event: Json, stream: str) -> None:
        part = self._open_part(event)
        if part is None:
            return
        self._note(stream not in part.closed, f"{event['type']} twice")
        part.closed.add(stream)
        if stream != "audio":
            said = event["text" if stream == "text" else "transcript"]
            self._note(said == "".join(part.texts), f"{event['type']} is not its deltas joined")

    def _arguments(self, event: Json) -> None:
        item = self._open_item(event)
        if item is None:
            return
        self._note(item.kind == "function_call", "arguments of what is no call")
        self._note(item.closed_arguments is None, "arguments after their end")
        if event["type"].endswith(".delta"):
            item.arguments.append(event["delta"])
            return
        item.closed_arguments = event["arguments"]
        if item.arguments:
            self._note("".join(item.arguments) == event["arguments"], "arguments unlike deltas")
