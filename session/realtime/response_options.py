"""Reads the response object of `response.create` into ResponseOptions.

Private keys of the server and whatever else has no meaning for one response are dropped.
"""

from typing import Final

from session.config import NO_TOKEN_LIMIT, AnswerSettings, ResponseOptions
from session.realtime.input_items import read_input
from session.realtime.readers import bad_value, token_limit, wrong_type
from session.realtime.session_fields import SHARED_SETTINGS, take_output_format
from session.realtime.setting_names import Named, Setting, flatten, take, take_settings
from session.realtime.tool_fields import ReadTools, read_tool_choice

MAX_METADATA_KEYS: Final = 16
MAX_METADATA_KEY_CHARS: Final = 64
MAX_METADATA_VALUE_CHARS: Final = 512

_PREFIX: Final = "response."


def _token_limit(value: object, param: str) -> int:
    """Read a token limit; null is the session's, so that "inf" must be something else."""
    limit = token_limit(value, param)
    return NO_TOKEN_LIMIT if limit is None else limit


_SETTINGS: Final = (
    *(each for each in SHARED_SETTINGS if each.field != "max_output_tokens"),
    *(
        each._replace(read=_token_limit)
        for each in SHARED_SETTINGS
        if each.field == "max_output_tokens"
    ),
    Setting("tool_choice", read_tool_choice, ("tool_choice",)),
)


def read_options(response: Named, read_tools: ReadTools) -> ResponseOptions:
    """Return the options of one answer."""
    named = flatten(response, _PREFIX)
    settings = (*_SETTINGS, Setting("tools", read_tools, ("tools",)))
    shared = dict(take_settings(named, settings, _PREFIX))
    modalities = shared.pop("output_modalities", None)
    return ResponseOptions(
        output_modalities=modalities,  # type: ignore[arg-type]  # as its setting reads it
        output_format=take_output_format(named, _PREFIX),
        settings=AnswerSettings(**shared),  # type: ignore[arg-type]  # the same
        is_out_of_band=_is_out_of_band(take(named, ("conversation",))[1]),
        metadata=_metadata(take(named, ("metadata",))[1]),
        input=read_input(take(named, ("input",))[1], "response.input"),
    )


def _is_out_of_band(conversation: object) -> bool:
    if not isinstance(conversation, str | None):
        raise wrong_type("response.conversation", "auto or none")
    if conversation not in (None, "auto", "none"):
        raise bad_value("response.conversation", "auto or none")
    return conversation == "none"


def _metadata(value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise wrong_type("response.metadata", "an object of texts")
    if len(value) > MAX_METADATA_KEYS:
        raise bad_value("response.metadata", f"an object of at most {MAX_METADATA_KEYS} texts")
    for key, text in value.items():
        param = f"response.metadata.{key[:MAX_METADATA_KEY_CHARS]}"
        if not isinstance(text, str):
            raise wrong_type(param, "a text")
        if len(text) > MAX_METADATA_VALUE_CHARS or len(key) > MAX_METADATA_KEY_CHARS:
            raise bad_value(
                param,
                f"a text of at most {MAX_METADATA_VALUE_CHARS} characters under a key of at most "
                f"{MAX_METADATA_KEY_CHARS}",
            )
    return tuple(value.items())
