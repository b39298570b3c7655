"""What a deploy file may say about the scripted model, and a session about its own script."""

import json
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from session.ids import SessionId

OWN_SCRIPT: Final = "script:"
"""Instructions that begin so go on with knobs as JSON, which hold for that session alone."""


@dataclass(frozen=True, slots=True)
class About:
    """What a sentence can quote."""

    said: str
    instructions: str
    told: str


class ScriptedSettings(BaseModel):
    """Knobs of the scripted model; all of them have a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    speech_level: float = Field(default=0.01, ge=0, lt=1)
    """Root mean square above which a unit is speech, with full scale at 1."""
    speak_at_units: frozenset[int] = Field(default=frozenset(), strict=False)
    """Units, counted from 1 in each session, at which an answer starts whatever was heard."""
    sentences: int = Field(default=2, ge=1)
    """Sentences of an answer; each is the speech of one unit."""
    sentence: str = "Answer {answer} to {session}, part {part} of {parts}."
    """Text of a sentence; {said} is the text that the user wrote or a function returned,
    {instructions} are those in force, and {told} is what it was told of the conversation: the
    latest messages, oldest first, each as `role: text`."""
    sentence_ms: int = Field(default=600, gt=0)
    """Length of a sentence's audio."""
    chunk_ms: int = Field(default=200, gt=0)
    """Length of one piece of it; the last may be shorter."""
    unit_delay_ms: int = Field(default=0, ge=0)
    """How long Stage0 thinks about a unit."""
    chunk_delay_ms: int = Field(default=0, ge=0)
    """How long Stage1 works on a piece of audio."""
    fail_at_units: frozenset[int] = Field(default=frozenset(), strict=False)
    """Units, counted from 1 in each session, that Stage0 fails on."""
    hang_at_units: frozenset[int] = Field(default=frozenset(), strict=False)
    """Units on which Stage0 hangs until it is interrupted or the session closed."""
    fail_at_sentences: frozenset[int] = Field(default=frozenset(), strict=False)
    """Sentences, counted from 1 in each session, that Stage1 fails on."""
    hang_at_chunks: frozenset[int] = Field(default=frozenset(), strict=False)
    """Pieces of audio, counted from 1 in each session, before which Stage1 hangs until it is
    interrupted or the session closed."""
    failing_closes: int = Field(default=0, ge=0)
    """How often each half fails to close a session before it succeeds."""
    voices: tuple[str, ...] = Field(default=("", "low", "high"), strict=False)
    """Voices that a session may have; they differ in pitch."""

    @field_validator("sentence")
    @classmethod
    def _names_only_known_fields(cls, template: str) -> str:
        try:
            template.format(
                session="s", answer=1, part=1, parts=1, said="", instructions="", told=""
            )
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(
                f"may use {{session}}, {{answer}}, {{part}}, {{parts}}, {{said}}, "
                f"{{instructions}} and {{told}}; it is wrong at {error}"
            ) from error
        return template

    def sentence_text(self, session_id: SessionId, answer: int, part: int, *, about: About) -> str:
        """Return the text of one sentence, which no other session, answer or part has."""
        return self.sentence.format(
            session=session_id,
            answer=answer,
            part=part,
            parts=self.sentences,
            said=about.said,
            instructions=about.instructions,
            told=about.told,
        )

    def of_session(self, instructions: str) -> "ScriptedSettings":
        """Return the knobs of a session with these instructions; raises ValueError."""
        if not instructions.startswith(OWN_SCRIPT):
            return self
        own = json.loads(instructions.removeprefix(OWN_SCRIPT))
        if not isinstance(own, dict):
            raise ValueError("a script is a JSON object")
        return read_settings(self.model_dump() | own)


def read_settings(settings: dict[str, Any]) -> ScriptedSettings:
    """Return the validated settings; raises ValueError that names the field."""
    try:
        return ScriptedSettings.model_validate(settings)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{field}: {first['msg']}") from error
