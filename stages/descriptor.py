"""The versioned descriptor that binds a model's Stage0, Stage1 and serving facts.

Both stages and the gateway exchange it in the lease handshake; a difference fails the open with
`runtime_contract_invalid` before anything is reserved. A client can not choose it.
"""

from dataclasses import dataclass

from session.model_profile import ModelProfile
from session.unit import INPUT_RATE_HZ, OUTPUT_RATE_HZ

CONTRACT_VERSION = 4
"""Raised whenever a call or value of `stages.contract` changes meaning."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Identity and fixed facts of one model."""

    name: str
    """Plugin name in the deploy file, such as `embedded`."""
    model_id: str
    """What `/v1/models` and `session.created` call it."""
    description: str
    profile: ModelProfile
    input_rate_hz: int = INPUT_RATE_HZ
    output_rate_hz: int = OUTPUT_RATE_HZ
    contract_version: int = CONTRACT_VERSION
