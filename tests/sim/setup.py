"""What a simulated world is like before anything happens in it: limits, model, settings."""

import random
from dataclasses import dataclass, replace

from session.config import (
    PlaybackCommitPolicy,
    SessionConfig,
    SessionLimits,
    TurnDetection,
    overlap_policy_for,
)
from session.model_profile import ModelProfile
from session.tools import Tool, ToolList

MAX_SESSIONS = 2
PROFILE = ModelProfile(
    unit_ms=200,
    text_input=True,
    messages=True,
    tools=True,
    video_input=True,
    input_transcription=True,
    updatable=frozenset({"temperature"}),
    response_options=frozenset({"temperature", "instructions", "input"}),
)
TOOLS = ToolList((Tool("look_up"),))


@dataclass(frozen=True, slots=True)
class Setup:
    """The fixed facts of a world."""

    limits: SessionLimits
    profile: ModelProfile
    configs: tuple[SessionConfig, ...]
    """Settings with which each client opens its sessions."""
    capacity: int
    """Frames that a socket takes while its client does not read."""


def make_setup(rng: random.Random) -> Setup:
    """Draw the facts of a world: mostly roomy limits, sometimes one that is met soon."""
    profile = replace(
        PROFILE, unit_ms=rng.choice([200, 200, 1000]), accepts_short_units=rng.random() < 0.5
    )
    n_clients = rng.choice([1, 1, 2, 3])
    return Setup(
        limits=_limits(rng, profile),
        profile=profile,
        configs=tuple(_config(rng) for _ in range(n_clients)),
        capacity=rng.choice([1, 2, 8]),
    )


def _limits(rng: random.Random, profile: ModelProfile) -> SessionLimits:
    unit_bytes = profile.unit_ms * 32
    return SessionLimits(
        idle_ttl_s=rng.choice([None, 300.0, 300.0, 4.0]),
        disconnect_grace_s=rng.choice([30.0, 30.0, 10.0, 2.0, 0.0]),
        reaper_interval_s=1.0,
        resume_replay_ttl_s=rng.choice([60.0, 60.0, 60.0, 1.5]),
        resume_replay_max_bytes_per_session=rng.choice([8_388_608, 8_388_608, 150_000, 20_000]),
        max_pending_input_bytes_per_session=rng.choice([16_777_216, 6 * unit_bytes]),
        max_sessions=MAX_SESSIONS,
        max_session_s=rng.choice([3600.0, 3600.0, 3600.0, 12.0]),
        expiring_notice_s=rng.choice([60.0, 3.0]),
        max_output_bytes_per_session=rng.choice([2_097_152, 60_000]),
        max_output_events_per_session=rng.choice([512, 512, 24]),
        stage_timeout_s=rng.choice([30.0, 3.0]),
        max_continuations=rng.choice([64, 3]),
        max_continuations_turn_mode=rng.choice([8, 2]),
    )


def _config(rng: random.Random) -> SessionConfig:
    detection = rng.choice(
        [
            None,
            None,
            TurnDetection(),
            TurnDetection(0.6),
            TurnDetection(interrupt_response=False),
            TurnDetection(idle_timeout_ms=800),
        ]
    )
    return SessionConfig(
        model="m",
        output_modalities=rng.choice([("text", "audio"), ("text", "audio"), ("text",)]),
        auto_response=rng.random() < 0.5,
        turn_detection=detection,
        overlap_policy=overlap_policy_for(detection),
        tools=rng.choice([ToolList(), ToolList(), TOOLS]),
        playback_commit_policy=rng.choice(list(PlaybackCommitPolicy)),
        idle_timeout_s=rng.choice([300.0, 300.0, 300.0, 3.0]),
    )
