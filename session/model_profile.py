"""What the kernel must know about a model: how it consumes input and which options it honours."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Facts of a model, from its descriptor; the same for every session."""

    unit_ms: int = 1000
    accepts_short_units: bool = False
    """Takes the residue of an utterance at its end instead of waiting for a full unit."""
    default_server_vad: bool = False
    """server_vad is on unless the client says null: the model can not yield by itself."""
    text_input: bool = False
    messages: bool = False
    """Takes messages of the system and the assistant, and messages of the user that come before
    the newest, each in its place."""
    video_input: bool = False
    tools: bool = False
    input_transcription: bool = False
    """UnitResult.heard carries what the user said."""
    ref_audio: bool = False
    """Takes a recording of a voice to speak with."""
    response_options: frozenset[str] = frozenset()
    """Single options of `response.create` that the model honours."""
    voices: frozenset[str] = frozenset()
    """Names of the voices it can speak with; empty: it has one, whatever that is called."""
    updatable: frozenset[str] = frozenset()
    """Model settings that `session.update` may change after the open."""
