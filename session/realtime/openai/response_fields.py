"""Reads the response object of `response.create` in this dialect."""

from collections.abc import Mapping
from typing import Final

from session.config import ResponseOptions
from session.realtime.openai.beta_names import refuse_beta_names
from session.realtime.openai.readers import (
    audio_format,
    output_modalities,
    token_limit,
)
from session.realtime.response_options import read_options
from session.realtime.tool_fields import read_functions

_PREFIX: Final = "response."


def read_response(response: Mapping[str, object]) -> ResponseOptions:
    """Return the options of one answer; raise ClientError for what can not be meant."""
    refuse_beta_names(response, _PREFIX)
    fields = dict(response)
    if fields.get("output_modalities") is not None:
        output_modalities(fields["output_modalities"], f"{_PREFIX}output_modalities")
    if fields.get("max_output_tokens") is not None:
        token_limit(fields["max_output_tokens"], f"{_PREFIX}max_output_tokens")
    audio = fields.get("audio")
    output = audio.get("output") if isinstance(audio, dict) else None
    if isinstance(output, dict) and output.get("format") is not None:
        audio_format(output["format"], f"{_PREFIX}audio.output.format")
    return read_options(fields, read_functions)
