"""What clients send by mistake or on purpose, and the code of the one error that it deserves."""

import base64

import numpy as np

from tests.fakes.wire import append, append_bytes, client

MEBIBYTE = 1_048_576
BAD: dict[str, tuple[str | bytes, str]] = {
    "malformed JSON": ('{"type": "input_audio_buffer.append"', "invalid_json"),
    "not an object": ("[1, 2]", "invalid_json"),
    "nothing": ("", "invalid_json"),
    "deep nesting": ("[" * 20_000, "invalid_json"),
    "deep nesting in an event": (
        '{"type": "session.update", "session": ' + '{"a":' * 5_000 + "1" + "}" * 5_001,
        "invalid_json",
    ),
    "bad base64": (client("input_audio_buffer.append", audio="%%%"), "bad_audio"),
    "no audio": (client("input_audio_buffer.append"), "missing_required_parameter"),
    "unknown event": (client("input_audio_buffer.explode"), "unknown_event"),
    "no type": ("{}", "unknown_event"),
    "binary": (b"\x00\x01", "bad_event"),
    "15 MiB": (client("input_audio_buffer.append", audio="A" * 15 * MEBIBYTE), "event_too_large"),
    "almost 16 MiB": (" " * (16 * MEBIBYTE - 1), "event_too_large"),
    "NaN": (
        append_bytes(np.array([0.5, np.nan], "<f4").tobytes(), format="pcm_f32le"),
        "bad_audio",
    ),
    "not a WAV": (append_bytes(b"RIFF", format="wav"), "bad_audio"),
    "a picture": (
        append(20, video_frames=[base64.b64encode(b"\xff\xd8\xff\xe0").decode()]),
        "invalid_input_modality",
    ),
    "commit of nothing": (client("input_audio_buffer.commit"), "input_audio_buffer_empty"),
    "cancel of nothing": (client("response.cancel"), "response_not_active"),
    "an item that is not there": (
        client("conversation.item.delete", item_id="item_none"),
        "item_not_found",
    ),
    "resume in the middle": (
        client("session.resume", session_id="s", resume_token="t"),
        "unsupported_session_resume",
    ),
}
