"""Reads the camera frames that ride an append."""

from typing import Final

from session.errors import MalformedEvent
from session.realtime.readers import strict_base64

MAX_FRAMES: Final = 2
MAX_FRAME_CHARS: Final = 4_000_000

_MAGIC: Final = (b"\xff\xd8", b"\x89PNG")


def read_video_frames(frames: object) -> tuple[bytes, ...]:
    """Return the images; raise MalformedEvent (`invalid_video_frames`) for anything else."""
    if frames is None:
        return ()
    if not isinstance(frames, list) or len(frames) > MAX_FRAMES:
        raise _invalid("video_frames", f"must be a list of at most {MAX_FRAMES} images")
    return tuple(_read_frame(frame, f"video_frames.{i}") for i, frame in enumerate(frames))


def _read_frame(frame: object, param: str) -> bytes:
    if not isinstance(frame, str) or len(frame) > MAX_FRAME_CHARS:
        raise _invalid(param, f"must be base64 of at most {MAX_FRAME_CHARS} characters")
    try:
        image = strict_base64(frame)
    except ValueError:
        raise _invalid(param, "must be bare base64, without a data: prefix") from None
    if not image.startswith(_MAGIC):
        raise _invalid(param, "must be a JPEG or a PNG image")
    return image


def _invalid(param: str, problem: str) -> MalformedEvent:
    return MalformedEvent(f"{param} {problem}", code="invalid_video_frames", param=param)
