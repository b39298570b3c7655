"""Reads the session object of `session.update` into a ConfigPatch.

Rule 1: only what is named changes; a nested object names only the members it holds.
Rule 2: private keys of the server are refused, a path or URL to open is refused.
Rule 3: a field that nobody here uses is echoed, never refused.
"""

import json
from collections.abc import Iterator
from typing import Final

from session.config import (
    AudioFormat,
    ConfigPatch,
    OverlapPolicy,
    PlaybackCommitPolicy,
    TurnDetectionPatch,
)
from session.echoed import EchoedPatch
from session.errors import MalformedEvent, UnsupportedOption
from session.realtime import audio_formats
from session.realtime.readers import (
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    bad_value,
    choice,
    flag,
    modalities,
    number,
    ref_audio,
    text,
    token_limit,
    voice,
    whole,
)
from session.realtime.setting_names import Named, Setting, flatten, take, take_settings
from session.realtime.tool_fields import read_tools, session_tool_choice, session_tools
from session.realtime.turn_detection import read_turn_detection

MAX_ECHO_BYTES: Final = 32_768
"""A field that nobody uses is echoed only up to this size, as JSON text in UTF-8."""

SHARED_SETTINGS: Final = (
    Setting("output_modalities", modalities, ("output_modalities", "modalities")),
    Setting("instructions", text(MAX_TEXT_CHARS), ("instructions",), is_nullable=True),
    Setting("voice", voice, ("audio.output.voice", "voice"), is_nullable=True),
    Setting("temperature", number(0.0, 2.0), ("temperature",), is_nullable=True),
    Setting(
        "max_output_tokens",
        token_limit,
        ("max_output_tokens", "max_response_output_tokens", "max_tokens"),
        is_nullable=True,
    ),
    Setting("speed", number(0.25, 1.5), ("audio.output.speed", "speed"), is_nullable=True),
)
"""Settings that a session and a single response have in common."""

OUTPUT_FORMAT_NAMES: Final = ("audio.output.format", "output_audio_format", "response_format")
OUTPUT_RATE_NAMES: Final = ("audio.output.sample_rate_hz",)

PRIVATE_KEYS: Final = frozenset(
    {
        "duplex_stage_sampling_params",
        "duplex_stage_max_tokens",
        "duplex_stage0_max_tokens",
        "duplex_scheduler_token_id",
        "duplex_vision_tile_pixels",
        "duplex_first_append_context_tokens",
        "ref_audio_data",
        "ref_audio_format",
        "ref_audio_sample_rate_hz",
        "duplex_window_config",
        "duplex_window_prefix_tokens",
        "duplex_window_suffix_token_ids",
        "duplex_window_previous_marker_token_ids",
        "duplex_window_special_token_ids",
    }
)
"""What the server derives for the stages; a client can not set it."""

_SESSION_SETTINGS: Final = (
    Setting("model", text(MAX_NAME_CHARS), ("model",)),
    *SHARED_SETTINGS,
    Setting(
        "ref_audio",
        ref_audio,
        ("ref_audio", "extra_body.ref_audio", "extra_body.tts_ref_audio"),
    ),
    Setting(
        "turn_detection",
        read_turn_detection,
        ("audio.input.turn_detection", "turn_detection"),
        is_nullable=True,
    ),
    Setting(
        "overlap_policy", choice(OverlapPolicy), ("overlap_policy", "extra_body.overlap_policy")
    ),
    Setting(
        "overlap_short_ack_ms",
        whole(0, 60_000),
        ("overlap_short_ack_ms", "extra_body.overlap_short_ack_ms"),
    ),
    Setting(
        "overlap_barge_in_ms",
        whole(0, 60_000),
        ("overlap_barge_in_ms", "extra_body.overlap_barge_in_ms"),
    ),
    Setting(
        "overlap_silence_rms",
        number(0.0, 1.0),
        ("overlap_silence_rms", "extra_body.overlap_silence_rms"),
    ),
    Setting(
        "playback_commit_policy",
        choice(PlaybackCommitPolicy),
        ("playback_commit_policy", "extra_body.playback_commit_policy"),
    ),
    Setting("auto_response", flag, ("extra_body.auto_response",)),
    Setting("force_listen_count", whole(0, 1_000), ("extra_body.force_listen_count",)),
    Setting("idle_timeout_s", number(1.0, 86_400.0), ("idle_timeout_s",)),
)
_INPUT_FORMAT_NAMES: Final = ("audio.input.format", "input_audio_format")
_INPUT_RATE_NAMES: Final = ("audio.input.sample_rate_hz", "sample_rate_hz", "sample_rate")
_READ_ONLY: Final = frozenset(
    {
        "id", "object", "state", "turn_state", "epoch", "turn_id", "active_request_id",
        "active_response_id", "active_response_turn_id", "playback", "capabilities",
        "expires_at", "extra_body.native_duplex",
    }
)  # fmt: skip
"""What the server says about a session. A client that sends it back asks for nothing."""


def read_patch(session: Named, prefix: str) -> ConfigPatch:
    """Return the changes that a session object asks for; `prefix` leads the names in errors."""
    named = flatten(session, prefix)
    _refuse_forbidden(named, prefix)
    if take(named, ("type",))[1] not in (None, "realtime"):
        raise bad_value(f"{prefix}type", "realtime")
    changes = dict(take_settings(named, _SESSION_SETTINGS, prefix))
    changes |= _take_formats(named, prefix)
    _check_overlap(changes, prefix)
    # Read and echoed: what a model does not use is still said back.
    if "tools" in named:
        changes["tools"] = session_tools(named["tools"], f"{prefix}tools", read_tools)
    if "tool_choice" in named:
        changes["tool_choice"] = session_tool_choice(named["tool_choice"], f"{prefix}tool_choice")
    echoed = tuple(_echoed(named))
    if echoed:
        changes["echoed"] = EchoedPatch(echoed)
    return ConfigPatch(tuple(changes.items()))


def _refuse_forbidden(named: Named, prefix: str) -> None:
    for name in named:
        key = name.rpartition(".")[2]
        param = f"{prefix}{name[:MAX_NAME_CHARS]}"
        if key in PRIVATE_KEYS or name == "extra_body.initial_user_text":
            raise UnsupportedOption(
                f"{param} is the server's own setting; leave it out",
                code="invalid_duplex_runtime_config",
                param=param,
            )
        if key in ("ref_audio_path", "tts_ref_audio_path"):
            raise UnsupportedOption(
                f"{param}: paths are not opened; send the recording as a data: URL in ref_audio",
                code="unsupported_ref_audio_path",
                param=param,
            )


def _take_formats(named: Named, prefix: str) -> Iterator[tuple[str, object]]:
    name, given = take(named, _INPUT_FORMAT_NAMES)
    rate_name, rate = take(named, _INPUT_RATE_NAMES)
    patch = audio_formats.read_input(given, rate, prefix + name, prefix + rate_name)
    if patch is not None:
        yield "input_format", patch
    output = take_output_format(named, prefix)
    if output is not None:
        yield "output_format", output


def take_output_format(named: Named, prefix: str) -> AudioFormat | None:
    """Remove the names of the output format; return the one they ask for, or None."""
    name, given = take(named, OUTPUT_FORMAT_NAMES)
    rate_name, rate = take(named, OUTPUT_RATE_NAMES)
    return audio_formats.read_output(given, rate, prefix + name, prefix + rate_name)


def _check_overlap(changes: dict[str, object], prefix: str) -> None:
    if "turn_detection" not in changes or "overlap_policy" not in changes:
        return
    policy = changes["overlap_policy"]
    match changes["turn_detection"]:
        case TurnDetectionPatch(changes=named) if dict(named).get("interrupt_response", True):
            follows = OverlapPolicy.BARGE_IN_ON_SPEECH
        case _:
            follows = OverlapPolicy.LISTEN_ONLY
    if policy is not follows:
        raise MalformedEvent(
            f"{prefix}overlap_policy contradicts turn_detection, which makes it {follows.value}: "
            "leave overlap_policy out",
            param=f"{prefix}overlap_policy",
        )


def _echoed(named: Named) -> Iterator[tuple[str, str]]:
    fields: Named = {}
    extra: Named = {}
    for name, value in named.items():
        if name in _READ_ONLY:
            continue
        if name.startswith("extra_body."):
            extra[name.removeprefix("extra_body.")] = value
        else:
            fields[name] = value
    if extra:
        fields["extra_body"] = extra
    for name, value in fields.items():
        as_json = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if len(name) <= MAX_NAME_CHARS and len(as_json.encode()) <= MAX_ECHO_BYTES:
            yield name, as_json
