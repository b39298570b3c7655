"""The recording of a voice on its way to the stages: a WAV becomes 24 kHz PCM."""

import asyncio
from dataclasses import replace

from serve_app.audio.audio_codec import recording_pcm
from session.config import RuntimeConfig
from session.errors import BadAudio


async def with_voice(runtime: RuntimeConfig) -> RuntimeConfig:
    """Return the settings with the voice's recording as the stages take it; raises BadAudio."""
    if not runtime.voice_sample:
        return runtime
    try:
        pcm = await asyncio.to_thread(recording_pcm, runtime.voice_sample)
    except BadAudio as error:
        raise BadAudio(
            f"the recording of the voice can not be read: {error.message}",
            param="session.ref_audio",
        ) from error
    if not pcm:
        raise BadAudio("the recording of the voice has no sound", param="session.ref_audio")
    return replace(runtime, voice_sample=pcm)
