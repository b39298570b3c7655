"""What a deploy file needs before it starts: `python -m tools.deploy needs FILE`, then `prepare`.

Rule 1: `needs` runs in the light environment: it prints `vllm` when a model of the file runs on
        vLLM, and nothing otherwise.
Rule 2: `prepare` writes the packaged language model where the file's own settings look for it, and
        the tiny checkpoint.
Rule 3: `prepare` fails if a checkpoint, or this machine, is not what the file's model needs: Serve
        would try again and again.
"""

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

from serve_app.settings import SelectedModel, read_args, select_model
from stages.embedded.prepare import prepare_language_model
from stages.embedded.settings import Engine, read_settings
from stages.minicpmo.plugin import machine_faults

EMBEDDED: Final = "embedded"
ON_VLLM: Final = frozenset({"minicpmo", "minicpmo_tiny"})
"""Models that run on vLLM whatever their settings."""


def models_of(text: str, environ: Mapping[str, str]) -> Iterator[SelectedModel]:
    """Find the models of a deploy file that `serve_app.check` has found right."""
    for app in yaml.safe_load(text)["applications"]:
        variables = app.get("runtime_env", {}).get("env_vars", {})
        yield select_model(read_args(app.get("args", {})), {**environ, **variables})


def needs_vllm(model: SelectedModel) -> bool:
    """Whether the model's stages run on vLLM."""
    if model.name == EMBEDDED:
        return read_settings(model.settings).engine is Engine.VLLM
    return model.name in ON_VLLM


def prepare(model: SelectedModel) -> None:
    """Do beforehand what would make the model's first start slow."""
    if model.name == EMBEDDED:
        print("== preparing the language model (about 15 s the first time)", flush=True)
        settings = read_settings(model.settings)
        folder = prepare_language_model(
            settings.cache_dir,
            engine=settings.engine,
            report=lambda line: print(line, flush=True),
        )
        print(f"language model: {folder}")
    if model.name in ON_VLLM:
        print("== checking the checkpoint", flush=True)
        found = machine_faults(model.name, model.settings)
        if found:
            raise SystemExit("\n".join(f"model_settings.{fault}" for fault in found))


def main() -> None:
    """Answer for every model of one file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["needs", "prepare"])
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    models = list(models_of(given.file.read_text(), os.environ))
    if given.what == "prepare":
        for model in models:
            prepare(model)
    elif any(needs_vllm(model) for model in models):
        print("vllm")


if __name__ == "__main__":
    main()
