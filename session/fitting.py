"""What of the settings that a client asks for the model can have."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from session.config import AnswerSettings, SessionConfig
from session.model_profile import ModelProfile

UPDATE_CODES: Final[Mapping[str, str]] = {
    "instructions": "instructions_update_unsupported",
    "voice": "voice_update_unsupported",
    "temperature": "temperature_update_unsupported",
    "max_output_tokens": "max_output_tokens_update_unsupported",
    "speed": "speed_update_unsupported",
}
"""Settings of the model, and the code of the error where it can not change them. A profile's
`updatable` names those that may change after the open."""


def fitted(
    wanted: SessionConfig, before: SessionConfig | None, profile: ModelProfile
) -> SessionConfig:
    """Return `wanted` without what the model can not do; that stays as in `before`.

    At the open (`before` is None) any setting may be had, and a voice if the model knows its name.
    """
    if profile.voices and wanted.voice not in (None, *profile.voices):
        wanted = replace(wanted, voice=None if before is None else before.voice)
    if before is None:
        return wanted
    kept = {name: getattr(before, name) for name in UPDATE_CODES if name not in profile.updatable}
    return replace(wanted, **kept)


def fitted_answer(wanted: AnswerSettings, profile: ModelProfile) -> AnswerSettings:
    """Return settings of one answer without a voice that the model can not give it."""
    is_known = wanted.voice in profile.voices if profile.voices else True
    if "voice" in profile.response_options and is_known:
        return wanted
    return replace(wanted, voice=None)
