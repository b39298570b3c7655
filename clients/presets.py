"""Finds a model's session settings by the name a program was given."""

from collections.abc import Callable, Mapping
from typing import Final

from clients import embedded, minicpmo_4_5, personaplex, scripted
from clients.session_config import SessionSettings, base_settings

AUTO: Final = "auto"

_PRESETS: Final[Mapping[str, Callable[[], SessionSettings]]] = {
    # Says nothing of turn detection, so that the deployed model's own default holds.
    AUTO: lambda: base_settings(extra_body={"native_duplex": True}),
    "embedded": embedded.create_duplex_session_config,
    "minicpmo_4_5": minicpmo_4_5.create_duplex_session_config,
    "personaplex": personaplex.create_duplex_session_config,
    "scripted": scripted.create_duplex_session_config,
}

PRESET_NAMES: Final = tuple(_PRESETS)


def preset(name: str) -> SessionSettings:
    """Return the settings called `name`. Raises ValueError that names the known ones."""
    if name not in _PRESETS:
        raise ValueError(f"unknown preset {name!r}; known: {', '.join(PRESET_NAMES)}")
    return _PRESETS[name]()
