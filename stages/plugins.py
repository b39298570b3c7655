"""Finds a model's plugin by the name the deploy file gives.

Plugins are imported on demand: naming `embedded` must not import torch.
"""

import importlib
from typing import Final

from stages.contract import Plugin

BUILT_IN: Final = {
    "embedded": "stages.embedded.plugin:PLUGIN",
    "minicpmo": "stages.minicpmo.plugin:PLUGIN",
    "minicpmo_tiny": "stages.minicpmo.plugin:TINY_PLUGIN",
    "scripted": "stages.scripted.plugin:PLUGIN",
}


def load_plugin(name: str) -> Plugin:
    """Return the plugin called `name`: a built-in one, or ``package.module:ATTRIBUTE``.

    Raises ValueError that names the known plugins when there is none.
    """
    path = BUILT_IN.get(name, name)
    module_name, _, attribute = path.partition(":")
    if not attribute:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(sorted(BUILT_IN))}")
    plugin = getattr(importlib.import_module(module_name), attribute)
    if not isinstance(plugin, Plugin):
        raise ValueError(f"{path} is not a stages.contract.Plugin")
    return plugin
