"""What a session's ear makes of audio that comes in pieces, and over one socket after the other."""

from serve_app.audio.input_audio import InputAudio
from serve_app.audio.speech_scorer import SileroScorers
from session.config import default_config
from session.ids import AttachmentId
from session.realtime.commands import AudioReceived
from session.stimuli import AudioAppended
from stages.scripted.plugin import PLUGIN

SOUND = b"\x01\x02\x03\x04"
ONE, NEXT = AttachmentId("one"), AttachmentId("next")


async def heard(audio: InputAudio, data: bytes, attachment: AttachmentId) -> bytes:
    config = default_config(PLUGIN.descriptor.model_id, PLUGIN.descriptor.profile)
    received = AudioReceived(data=data, format=None, wire_bytes=0)
    appended = await audio.append(received, attachment, config, wants_scores=False)
    assert isinstance(appended, AudioAppended)
    return appended.pcm


async def test_a_sample_may_come_in_two_pieces() -> None:
    audio = InputAudio(SileroScorers().open)
    assert await heard(audio, SOUND[:3], ONE) == SOUND[:2]
    assert await heard(audio, SOUND[3:], ONE) == SOUND[2:]


async def test_a_sample_that_a_lost_socket_cut_does_not_shift_what_the_next_one_says() -> None:
    audio = InputAudio(SileroScorers().open)
    assert await heard(audio, SOUND[:3], ONE) == SOUND[:2]
    assert await heard(audio, SOUND, NEXT) == SOUND
    assert await heard(audio, SOUND[:1], NEXT) == b""
    assert await heard(audio, SOUND[1:], NEXT) == SOUND
