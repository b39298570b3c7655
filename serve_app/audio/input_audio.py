"""From what a client appended to what the kernel is told: 16 kHz PCM, its scores, and a level.

Rule 1: every converted sample reaches the kernel in exactly one AudioAppended.
Rule 2: the scorer and the kernel count the same samples, scored or not.
"""

import asyncio
from dataclasses import replace

from serve_app.audio.audio_codec import LONG_AUDIO_BYTES, InputConverter, level
from serve_app.audio.speech_scorer import OpenScorer, SpeechScorer
from session.config import AudioFormat, SessionConfig
from session.errors import BadAudio
from session.realtime.commands import AudioReceived, ItemReceived
from session.stimuli import AudioAppended, EventRefused, ItemCreated, SpeechScore
from session.unit import SAMPLE_BYTES


class InputAudio:
    """One session's ear: its conversion and its voice-activity scoring."""

    def __init__(self, open_scorer: OpenScorer) -> None:
        self._converter = InputConverter()
        self._open_scorer = open_scorer
        self._scorer: SpeechScorer | None = None
        self._unscored_samples = 0
        """Samples that went by before the session had a scorer."""
        self._is_speech: bool | None = None

    async def append(
        self, received: AudioReceived, config: SessionConfig, *, wants_scores: bool
    ) -> AudioAppended | EventRefused:
        """Convert and score one append; a refusal stands for audio that can not be decoded."""
        audio_format = received.format or config.input_format
        try:
            pcm = await self._converted(received.data, audio_format)
        except BadAudio as error:
            return EventRefused(error, received.event_id)
        appended = await self._heard(pcm, config, wants_scores=wants_scores)
        if received.is_speech is not None:
            appended = replace(appended, is_speech=received.is_speech)
        self._is_speech = appended.is_speech
        return replace(
            appended,
            wire_bytes=received.wire_bytes,
            force_listen=received.force_listen,
            force_barge_in=received.force_barge_in,
            overlap_action=received.overlap_action,
            text_hint=received.text_hint,
            video_frames=received.video_frames,
            event_id=received.event_id,
        )

    async def rest(self, config: SessionConfig, *, wants_scores: bool) -> AudioAppended | None:
        """Return what the resampler still holds of the item that is being committed, if any."""
        pcm = self._converter.flush()
        if not pcm:
            return None
        appended = await self._heard(pcm, config, wants_scores=wants_scores)
        return replace(appended, is_speech=self._is_speech)

    def forget(self) -> None:
        """Drop what is not final yet: the client cleared its input."""
        self._converter.reset()

    async def _converted(self, data: bytes, audio_format: AudioFormat) -> bytes:
        """Convert in a thread what is long; whoever awaits it keeps the order."""
        if len(data) > LONG_AUDIO_BYTES:
            return await asyncio.to_thread(self._converter.convert, data, audio_format)
        return self._converter.convert(data, audio_format)

    async def _heard(
        self, pcm: bytes, config: SessionConfig, *, wants_scores: bool
    ) -> AudioAppended:
        if wants_scores:
            return AudioAppended(pcm, scores=await self._scored(pcm))
        samples = len(pcm) // SAMPLE_BYTES
        if self._scorer is not None:
            self._scorer.skip(samples)
        else:
            self._unscored_samples += samples
        is_speech = level(pcm) >= config.overlap_silence_rms if pcm else None
        return AudioAppended(pcm, is_speech=is_speech)

    async def _scored(self, pcm: bytes) -> tuple[SpeechScore, ...]:
        if self._scorer is None:
            self._scorer = await self._open_scorer()
            self._scorer.skip(self._unscored_samples)
        return await self._scorer.score(pcm)


async def item_created(received: ItemReceived, config: SessionConfig) -> ItemCreated | EventRefused:
    """Convert the audio of an item; the stream of appends knows nothing of it."""
    item = received.item
    try:
        pcm = await asyncio.to_thread(_all_of, received.audio, config.input_format)
    except BadAudio as error:
        return EventRefused(error, item.event_id)
    return replace(item, pcm=pcm)


def _all_of(audio: bytes, audio_format: AudioFormat) -> bytes:
    converter = InputConverter()
    pcm = converter.convert(audio, audio_format) + converter.flush()
    if not pcm:
        raise BadAudio("there is no audio in the item")
    return pcm
