"""The fields that events about an answer have in every dialect of the Realtime API."""

from session.realtime.server_objects import WireObject


class ContentFields(WireObject):
    """Of the events about the one part of an answer's message."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int = 0


class ArgumentsFields(WireObject):
    """Of the events about the arguments of a function call."""

    response_id: str
    item_id: str
    output_index: int
    call_id: str
