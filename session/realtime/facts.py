"""What the server knows of itself, and how that reads as capabilities."""

from dataclasses import dataclass, replace

from session.config import SessionLimits
from session.model_profile import ModelProfile
from session.realtime.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts of one deployment, the same for every session."""

    model_id: str
    profile: ModelProfile
    max_sessions: int
    limits: SessionLimits
    supports_resume: bool = False
    """Whether a broken socket's session can be gone on with on another socket."""
    has_resumable_requests: bool = False
    """Whether the model keeps one engine request, and its KV, for a whole session."""

    def capabilities(self) -> Capabilities:
        """Return the object that clients are shown; it claims nothing that is not so."""
        profile = self.profile
        is_multi = self.max_sessions > 1
        # A model that needs server_vad by default does not take turns by itself.
        decides_itself = not profile.default_server_vad
        return Capabilities(
            supports_session_resume=self.supports_resume,
            supports_multi_session=is_multi,
            supports_multi_session_same_replica=is_multi,
            advertised_multi_session=is_multi,
            configured_limit=self.max_sessions,
            limits=replace(self.limits, max_sessions=self.max_sessions),
            implementation_level="model_native_duplex" if decides_itself else "cascade",
            supports_model_native_turn_policy=decides_itself,
            supports_stage_resumption=self.has_resumable_requests,
            supports_core_resumable_request=self.has_resumable_requests,
            requires_model_runner_kv=self.has_resumable_requests,
            supports_image_input=profile.video_input,
            supports_text_only_turn=profile.text_input,
            supports_tools=profile.tools,
            supports_input_transcription=profile.input_transcription,
            required_input_modalities=("audio",),
            optional_input_modalities=_optional_inputs(profile),
            signal_sources=(
                *(("model_native",) if decides_itself else ()),
                "client_event",
                "server_policy",
            ),
            chunk_period_ms=profile.unit_ms,
        )


def _optional_inputs(profile: ModelProfile) -> tuple[str, ...]:
    offered = (("text", profile.text_input), ("video", profile.video_input))
    return tuple(name for name, is_offered in offered if is_offered)
