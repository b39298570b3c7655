"""Validates a plugin before anything is deployed: its version, its callables and its settings."""

import inspect
from typing import Any, Final

from session.unit import INPUT_RATE_HZ, OUTPUT_RATE_HZ
from stages.contract import Plugin, Stage0Model, Stage1Model
from stages.descriptor import CONTRACT_VERSION

CALLS: Final = ("open", "append", "speak", "configure", "interrupt", "close", "warm_up", "died")


def check_plugin(plugin: Plugin, settings: dict[str, Any]) -> None:
    """Raise ValueError with everything that keeps the plugin from being deployed."""
    descriptor = plugin.descriptor
    if descriptor.contract_version != CONTRACT_VERSION:
        raise ValueError(
            f"{descriptor.name} speaks stage contract {descriptor.contract_version}, "
            f"this service speaks {CONTRACT_VERSION}"
        )
    rates = (descriptor.input_rate_hz, descriptor.output_rate_hz)
    if rates != (INPUT_RATE_HZ, OUTPUT_RATE_HZ):
        raise ValueError(
            f"{descriptor.name} takes {rates[0]} Hz and makes {rates[1]} Hz; the stages exchange "
            f"{INPUT_RATE_HZ} Hz and {OUTPUT_RATE_HZ} Hz"
        )
    plugin.check_settings(settings)
    faults = _missing_calls(plugin.make_stage0(settings), Stage0Model)
    faults += _missing_calls(plugin.make_stage1(settings), Stage1Model)
    if faults:
        raise ValueError(f"{descriptor.name} does not keep the contract: {'; '.join(faults)}")


def _missing_calls(model: object, protocol: type) -> list[str]:
    """Return what of the protocol the model lacks or takes other arguments for."""
    faults = []
    for name in CALLS:
        wanted = getattr(protocol, name, None)
        if wanted is None:
            continue
        call = getattr(model, name, None)
        if not callable(call):
            faults.append(f"{type(model).__name__} has no {name}()")
            continue
        named = list(inspect.signature(wanted).parameters.values())[1:]
        arguments = [each.name for each in named]
        by_name = {each.name: "" for each in named if each.kind is each.KEYWORD_ONLY}
        by_place = [name for name in arguments if name not in by_name]
        try:
            inspect.signature(call).bind(*by_place, **by_name)
        except TypeError:
            faults.append(f"{type(model).__name__}.{name}() must take ({', '.join(arguments)})")
    return faults
