"""The events of the published APIs and their fields, read from the `openai` package's types."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, get_args, get_origin

from openai.types.live.client_event import ClientEvent as LiveClientEvent
from openai.types.live.server_event import ServerEvent as LiveServerEvent
from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from pydantic import BaseModel

Standard = Mapping[str, frozenset[str]]
"""The fields of each event, by its type."""


def _events(union: object) -> dict[str, frozenset[str]]:
    return {
        str(name): frozenset(model.model_fields)
        for model in _models(union)
        for name in get_args(model.model_fields["type"].annotation)
    }


def _models(union: object) -> Iterator[type[BaseModel]]:
    if get_origin(union) is Annotated:
        yield from _models(get_args(union)[0])
    elif isinstance(union, type) and issubclass(union, BaseModel):
        yield union
    else:
        for part in get_args(union):
            yield from _models(part)


REALTIME_CLIENT: Final[Standard] = _events(RealtimeClientEvent)
REALTIME_SERVER: Final[Standard] = _events(RealtimeServerEvent)
LIVE_CLIENT: Final[Standard] = _events(LiveClientEvent)
LIVE_SERVER: Final[Standard] = _events(LiveServerEvent)
