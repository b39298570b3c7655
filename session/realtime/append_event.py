"""`input_audio_buffer.append`: the one client event that comes five times a second."""

from typing import Final, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from session.errors import MalformedEvent
from session.realtime.audio_formats import read_append
from session.realtime.client_events import ClientEvent, Text
from session.realtime.commands import AudioReceived, Command
from session.realtime.readers import base64_bytes, missing
from session.realtime.video_frames import read_video_frames

_SPEECH_PROBABILITY: Final = 0.5

_OVERLAP_ACTIONS: Final = {
    "barge_in": "barge_in",
    "interrupt": "barge_in",
    "cancel": "barge_in",
    "listen": "listen",
    "continue": "listen",
    "ack": "listen",
    "drop": "drop",
    "ignore": "drop",
    "silence": "drop",
}


class VadOpinion(BaseModel):
    """What the client's own detector says about an append."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    is_speech: bool | None = None
    speech_probability: float | None = Field(default=None, ge=0.0, le=1.0)


class InputAudioBufferAppend(ClientEvent):
    """Adds audio to the input buffer; any number, no answer."""

    type: Literal["input_audio_buffer.append"] = "input_audio_buffer.append"
    audio: str | None = Field(default=None, validation_alias=AliasChoices("audio", "delta"))
    # `object`: these have readers of their own, with error codes of their own.
    format: object = Field(
        default=None, validation_alias=AliasChoices("format", "input_audio_format")
    )
    sample_rate_hz: object = Field(
        default=None, validation_alias=AliasChoices("sample_rate_hz", "sample_rate")
    )
    video_frames: object = None
    is_speech: bool | None = Field(
        default=None, validation_alias=AliasChoices("is_speech", "speech")
    )
    vad: VadOpinion | None = None
    speech_probability: float | None = Field(default=None, ge=0.0, le=1.0)
    force_listen: bool | None = None
    force_barge_in: bool | None = None
    overlap_action: str | None = Field(
        default=None, validation_alias=AliasChoices("overlap_action", "overlap")
    )
    text_hint: Text | None = Field(
        default=None, validation_alias=AliasChoices("text", "transcript")
    )
    max_slice_nums: Literal[1] | None = None

    def to_command(self) -> Command:
        """Return the audio, decoded from base64 and still in the client's format."""
        frames = read_video_frames(self.video_frames)
        if self.audio is None:
            raise _no_audio(has_frames=bool(frames))
        return AudioReceived(
            data=base64_bytes(self.audio, "audio"),
            format=read_append(self.format, self.sample_rate_hz),
            wire_bytes=len(self.audio) + sum(map(len, frames)),
            is_speech=self._opinion(),
            force_listen=self.force_listen or False,
            force_barge_in=self.force_barge_in or False,
            overlap_action=_overlap_action(self.overlap_action),
            text_hint=self.text_hint or "",
            event_id=self.event_id,
            video_frames=frames,
        )

    def _opinion(self) -> bool | None:
        """Return the client's opinion; a plain flag counts before a probability."""
        vad = self.vad or VadOpinion()
        for said in (self.is_speech, vad.is_speech):
            if said is not None:
                return said
        for probability in (vad.speech_probability, self.speech_probability):
            if probability is not None:
                return probability >= _SPEECH_PROBABILITY
        return None


def _no_audio(*, has_frames: bool) -> MalformedEvent:
    if has_frames:
        return MalformedEvent(
            "video_frames ride an append that has audio",
            code="invalid_input_modality",
            param="audio",
        )
    return missing("audio")


def _overlap_action(named: str | None) -> str | None:
    if named is None:
        return None
    action = _OVERLAP_ACTIONS.get(named)
    if action is None:
        raise MalformedEvent(
            f"overlap_action must be one of {', '.join(_OVERLAP_ACTIONS)}", param="overlap_action"
        )
    return action
