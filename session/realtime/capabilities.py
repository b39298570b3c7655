"""The capabilities object of `session.created`: what this server and its model really do."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from session.config import SessionLimits


class Capabilities(BaseModel):
    """What a client may rely on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # of the service, whatever the model
    supports_session_adapter: Literal[True] = True
    supports_external_turn_signal: Literal[True] = True
    supports_client_commit: Literal[True] = True
    supports_barge_in: Literal[True] = True
    supports_playback_ack: Literal[True] = True
    supports_input_append: Literal[True] = True
    supports_model_internal_state: Literal[True] = True
    supports_stage_connector_handoff: Literal[True] = True
    supports_independent_io_streams: Literal[True] = True
    supports_realtime_endpoint: Literal[True] = True
    supports_session_lease: Literal[True] = True
    supports_audio_truncate: Literal[True] = True
    supports_server_vad: Literal[True] = True
    requires_native_stage_role: Literal[True] = True
    supports_replace_latest_chunk: Literal[False] = False
    supports_reencode_context: Literal[False] = False
    supports_turn_commit_only: Literal[False] = False
    supports_rollback_to_checkpoint: Literal[False] = False
    supports_kv_lease: Literal[False] = False
    supports_core_kv_lease: Literal[False] = False
    supports_scheduler_native_append: Literal[False] = False
    supports_concurrent_turn_requests: Literal[False] = False

    # of the deployment
    supports_session_resume: bool
    supports_multi_session: bool
    supports_multi_session_same_replica: bool
    advertised_multi_session: bool
    configured_limit: int
    session_admission_mode: Literal["engine_managed"] = "engine_managed"
    limits: SessionLimits
    """The server's bounds, from the deploy file; a client can not change them."""

    # of the model
    implementation_level: Literal["model_native_duplex", "cascade"]
    supports_model_native_turn_policy: bool
    supports_stage_resumption: bool
    supports_core_resumable_request: bool
    requires_model_runner_kv: bool
    supports_image_input: bool
    supports_text_only_turn: bool
    supports_tools: bool
    supports_input_transcription: bool
    required_input_modalities: tuple[str, ...]
    optional_input_modalities: tuple[str, ...]
    signal_sources: tuple[str, ...]
    adapter_patterns: tuple[str, ...] = ("stage_actor_call",)
    input_modes: tuple[str, ...] = ("append_audio_chunk",)
    stage_handoff_transport: Literal["object_ref"] = "object_ref"
    chunk_period_ms: int
    target_barge_in_latency_ms: None = None
    """No target is promised."""
