"""The versioned descriptor that binds a model's Stage0, Stage1 and serving facts.

Both stages and the gateway exchange it in the lease handshake; a difference fails the open with
`runtime_contract_invalid` before anything is reserved. A client can not choose it.
"""

from dataclasses import dataclass

from session.unit import INPUT_RATE_HZ, OUTPUT_RATE_HZ

CONTRACT_VERSION = 1
"""Raised whenever a call or value of `stages.contract` changes meaning."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can do; echoed truthfully to clients."""

    text_input: bool = False
    video_input: bool = False
    tools: bool = False
    input_transcription: bool = False
    """UnitResult.heard carries what the user said."""
    response_options: frozenset[str] = frozenset()
    """Which single options of `response.create` the model honours."""
    updatable: frozenset[str] = frozenset()
    """Which model settings `session.update` may change after the open."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Identity and fixed facts of one model."""

    name: str
    """Plugin name in the deploy file, such as `embedded`."""
    model_id: str
    """What `/v1/models` and `session.created` call it."""
    description: str
    unit_ms: int = 1000
    accepts_short_units: bool = False
    """Takes the residue of an utterance at its end instead of waiting for a full unit."""
    default_server_vad: bool = False
    """server_vad is on unless the client says null: the model can not yield by itself."""
    input_rate_hz: int = INPUT_RATE_HZ
    output_rate_hz: int = OUTPUT_RATE_HZ
    requires_ref_audio: bool = False
    capabilities: Capabilities = Capabilities()
    contract_version: int = CONTRACT_VERSION
