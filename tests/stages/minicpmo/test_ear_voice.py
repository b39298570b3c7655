"""The ear learns a voice from a recording at the recording's own rate."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch

from session.errors import UnsupportedOption
from session.unit import VOICE_RATE_HZ
from stages.log_mel import Floats
from stages.minicpmo.ear import EncoderEar
from stages.minicpmo.mel import reference_mel
from tests.stages.minicpmo.voice_recordings import recording

pytestmark = pytest.mark.models


class MelReader:
    """Has only what learning a voice needs of an encoder, and returns its mel."""

    def encode_reference(self, mel: Floats) -> torch.Tensor:
        return torch.from_numpy(mel)


@pytest.fixture
def ear() -> Iterator[EncoderEar]:
    made = EncoderEar(cast(Any, MelReader()), cast(Any, None), batch=1)
    yield made
    made.close()


async def test_a_recording_is_heard_at_its_own_pitch(ear: EncoderEar) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(2 * VOICE_RATE_HZ) / VOICE_RATE_HZ)
    made = await ear.learn_voice((16_000 * tone).astype("<i2").tobytes())
    at_16k = np.sin(2 * np.pi * 440 * np.arange(32_000) / 16_000).astype(np.float32)
    same = reference_mel(at_16k * np.float32(16_000 / 32_768))
    heard = cast(Any, made.rows).numpy()
    assert heard.shape == same.shape == (80, 200)
    # At its ends the tone begins and stops, which each rate tells its own way.
    assert (heard[:, 20:-20].argmax(axis=0) == same[:, 20:-20].argmax(axis=0)).all()
    np.testing.assert_allclose(heard.max(), same.max(), atol=1e-2)


async def test_up_to_30_s_are_heard(ear: EncoderEar) -> None:
    thirty = recording(1, 6.0) * 5
    assert cast(Any, (await ear.learn_voice(thirty)).rows).shape == (80, 3000)
    with pytest.raises(UnsupportedOption, match="up to 30 s"):
        await ear.learn_voice(thirty + bytes(VOICE_RATE_HZ))
