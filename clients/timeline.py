"""The assistant's voice laid out in time, as a listener would have heard it."""

from dataclasses import dataclass

from clients.audio_formats import to_pcm16
from clients.events import AudioDelta, OutputAudioCleared, ResponseDone, ServerEvent
from clients.session_config import OUTPUT_RATE_HZ
from clients.wav import Recording


@dataclass(slots=True)
class _Piece:
    response_id: str
    start_s: float
    pcm: bytes


class Timeline:
    """Places chunks where the speaker played them and cuts what it did not play."""

    def __init__(self) -> None:
        self._rate_hz = OUTPUT_RATE_HZ
        self._pieces: list[_Piece] = []

    def observe(self, event: ServerEvent, start_s: float | None) -> None:
        """Take an event and, if it has audio that is played, the time at which that starts."""
        match event:
            case AudioDelta() if start_s is not None:
                self._rate_hz = event.rate_hz
                pcm = to_pcm16(event.audio, event.encoding)
                self._pieces.append(_Piece(event.response_id, start_s, pcm))
            case OutputAudioCleared():
                self._cut(event.response_id, event.received_s)
            case ResponseDone(is_cut=True):
                self._cut(event.response_id, event.received_s)
            case _:
                pass

    def render(self, start_s: float, end_s: float) -> Recording:
        """Return what was heard between two times; silence where nothing was."""
        track = bytearray(self._bytes(end_s - start_s))
        for piece in reversed(self._pieces):
            if piece.start_s + len(piece.pcm) / 2 / self._rate_hz < start_s:
                break  # pieces are in the order of time: all earlier ones are over, too
            _lay(track, piece.pcm, self._bytes(piece.start_s - start_s))
        return Recording(bytes(track), self._rate_hz)

    def _bytes(self, seconds: float) -> int:
        return round(seconds * self._rate_hz) * 2

    def _cut(self, response_id: str, at_s: float) -> None:
        for piece in self._pieces:
            if piece.response_id == response_id:
                piece.pcm = piece.pcm[: max(0, self._bytes(at_s - piece.start_s))]


def _lay(track: bytearray, pcm: bytes, at: int) -> None:
    skipped = max(0, -at)
    first = max(0, at)
    part = pcm[skipped : skipped + max(0, len(track) - first)]
    track[first : first + len(part)] = part
