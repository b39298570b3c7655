"""`conversation.item.create`: a message of text, or the output of a function call."""

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from session.errors import MissingField, UnsupportedOption
from session.ids import ItemId
from session.realtime.client_events import ClientEvent, Id, Text
from session.realtime.commands import Command, ItemReceived
from session.realtime.input_items import TEXT_PARTS
from session.realtime.readers import MAX_TEXT_CHARS, base64_bytes, missing, too_long
from session.stimuli import ItemCreated


class ContentPart(BaseModel):
    """One part of a message."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    type: str
    """`input_text`, `output_text` or `text`; of a user also `input_audio`. No other is taken."""
    text: Text | None = None
    audio: str | None = None
    """Base64 of the session's input format, for the `input_audio` of a user."""


class NewItem(BaseModel):
    """The item to create."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    type: str
    """`message` or `function_call_output`. No other is taken."""
    id: Id | None = None
    role: Literal["system", "user", "assistant"] | None = None
    content: list[ContentPart] | None = None
    call_id: Id | None = None
    output: Text | None = None


class ConversationItemCreate(ClientEvent):
    """Puts an item into the conversation, at its end or behind `previous_item_id`."""

    type: Literal["conversation.item.create"] = "conversation.item.create"
    item: NewItem
    previous_item_id: Id | None = None

    def to_command(self) -> Command:
        """Return the stimulus."""
        match self.item.type:
            case "message":
                return self._message()
            case "function_call_output":
                if self.item.call_id is None or self.item.output is None:
                    param = "item.call_id" if self.item.call_id is None else "item.output"
                    raise MissingField(
                        f"{param} is missing: a function_call_output needs call_id and output",
                        code="invalid_function_call_output",
                        param=param,
                    )
                return self._created("tool", self.item.output)
            case _:
                raise _unsupported(
                    "item.type", "message or function_call_output; the model alone makes calls"
                )

    def _message(self) -> Command:
        role = _role(self.item)
        spoken = [each for each in self.item.content or [] if each.type == "input_audio"]
        if role != "user" or not spoken:
            return self._created(role, _text(self.item))
        if len(spoken) > 1:
            raise _unsupported("item.content", "a list of one input_audio at most")
        index = (self.item.content or []).index(spoken[0])
        if spoken[0].audio is None:
            raise missing(f"item.content.{index}.audio")
        audio = base64_bytes(spoken[0].audio, f"item.content.{index}.audio")
        return ItemReceived(self._created(role, _text(self.item)), audio)

    def _created(self, role: str, text: str) -> ItemCreated:
        previous = self.previous_item_id
        return ItemCreated(
            role=role,
            text=text,
            item_id=None if self.item.id is None else ItemId(self.item.id),
            previous_item_id=None if previous is None else ItemId(previous),
            call_id=self.item.call_id if role == "tool" else None,
            event_id=self.event_id,
        )


_PARTS_OF: Final[Mapping[str, str]] = {
    "user": "input_text or input_audio; images are not taken",
    "system": "input_text; audio and images are not taken",
    "assistant": "output_text; its audio and images are not taken",
}
"""What a message may hold, by who says it."""


def _role(item: NewItem) -> str:
    if item.role is None:
        raise missing("item.role")
    return item.role


def _text(item: NewItem) -> str:
    if not item.content:
        raise missing("item.content")
    texts: list[str] = []
    for index, part in enumerate(item.content):
        if part.type == "input_audio" and item.role == "user":
            continue
        if part.type not in TEXT_PARTS:
            raise _unsupported(f"item.content.{index}.type", _PARTS_OF[_role(item)])
        if part.text is None:
            raise missing(f"item.content.{index}.text")
        texts.append(part.text)
    joined = "\n".join(texts)
    if len(joined) > MAX_TEXT_CHARS:
        raise too_long("item.content", f"{MAX_TEXT_CHARS} characters")
    return joined


def _unsupported(param: str, wanted: str) -> UnsupportedOption:
    return UnsupportedOption(
        f"{param} must be {wanted}", code="unsupported_item_content", param=param
    )
