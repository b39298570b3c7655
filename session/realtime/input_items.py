"""Reads `response.input`: messages of text, and references to messages of the conversation."""

from typing import Final

from session.context import ContextMessage, ItemReference
from session.errors import UnsupportedOption
from session.ids import ItemId
from session.realtime.readers import (
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    bad_value,
    missing,
    text,
    too_long,
    wrong_type,
)

MAX_INPUT_ITEMS: Final = 256
ROLES: Final = ("system", "user", "assistant")
TEXT_PARTS: Final = ("input_text", "text", "output_text")


def read_input(value: object, param: str) -> tuple[ContextMessage | ItemReference, ...] | None:
    """Read the items that an answer sees instead of the conversation; null for none of that."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type(param, "a list of items")
    if len(value) > MAX_INPUT_ITEMS:
        raise too_long(param, f"{MAX_INPUT_ITEMS} items")
    return tuple(_item(each, f"{param}.{place}") for place, each in enumerate(value))


def _item(value: object, param: str) -> ContextMessage | ItemReference:
    if not isinstance(value, dict):
        raise wrong_type(param, "an item")
    match value.get("type"):
        case "message":
            if value.get("role") is None:
                raise missing(f"{param}.role")
            if value["role"] not in ROLES:
                raise bad_value(f"{param}.role", "system, user or assistant")
            return ContextMessage(value["role"], _content(value.get("content"), f"{param}.content"))
        case "item_reference" if value.get("id") is None:
            raise missing(f"{param}.id")
        case "item_reference":
            return ItemReference(ItemId(text(MAX_NAME_CHARS)(value.get("id"), f"{param}.id")))
        case None:
            raise missing(f"{param}.type")
        case _:
            raise _unsupported(f"{param}.type", "message or item_reference")


def _content(parts: object, param: str) -> str:
    if parts is None:
        raise missing(param)
    if not isinstance(parts, list):
        raise wrong_type(param, "a list of parts")
    if not parts:
        raise bad_value(param, "a list of one part at least")
    joined = "\n".join(_part(part, f"{param}.{place}") for place, part in enumerate(parts))
    return text(MAX_TEXT_CHARS)(joined, param)


def _part(part: object, param: str) -> str:
    if not isinstance(part, dict):
        raise wrong_type(param, "a part")
    if part.get("type") not in TEXT_PARTS:
        raise _unsupported(
            f"{param}.type", "input_text or output_text: an answer is asked for with text only"
        )
    if part.get("text") is None:
        raise missing(f"{param}.text")
    return text(MAX_TEXT_CHARS)(part.get("text"), f"{param}.text")


def _unsupported(param: str, wanted: str) -> UnsupportedOption:
    return UnsupportedOption(
        f"{param} must be {wanted}", code="unsupported_response_input", param=param
    )
