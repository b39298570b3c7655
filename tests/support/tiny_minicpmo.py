"""What the recorded tokens of the tiny MiniCPM-o checkpoint say."""

import json
from pathlib import Path
from typing import Final

from stages.minicpmo.tiny_tokenizer import FIRST_SPECIAL

_FOLDER: Final = Path(__file__).parents[1] / "data" / "minicpmo"


def golden_texts() -> dict[int, str]:
    """Return all recorded ordinary tokens' texts, as `write_tiny_checkpoint` takes them."""
    texts: dict[int, str] = {}
    for name in ("free_run.json", "llm_units.json", "policy.json"):
        listed = json.loads((_FOLDER / name).read_text(encoding="utf-8"))["token_text"]
        texts |= {int(number): text for number, text in listed.items()}
    return {number: text for number, text in texts.items() if number < FIRST_SPECIAL}
