"""Writes Token2Wav's folder of a tiny checkpoint: its networks, and a voice that is prepared.

1. `flow.pt` follows the weight rule, so it is what was recorded. `hift.pt` has the published names
   and the rule's noise in fewer channels: the recorded one has 20 million values, which two small
   cores can not run in time for two conversations.
2. The two networks that learn a voice from a recording are toys (`tools/toy_voice_networks.py`),
   which lie in the package. So is the folder's own voice: `voice.npz` with `codes`, `mel` and
   `speaker`, made up.
3. It is a folder of its own beside the tiny checkpoint's, because writing it needs torch.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import torch

from stages.minicpmo import weight_rule
from stages.minicpmo.voice_files import VOICE_FILE
from stages.minicpmo.voice_networks import SPEAKER_FILE, TOKENIZER_FILE
from stages.minicpmo.weight_rule import Float32, TensorRule, make_tensor, rules, unit_noise

_TOYS: Final = weight_rule.RULES_FILE.parent
_PUBLISHED_CHANNELS: Final = 512
_CHANNELS: Final = 32
_BANDS: Final = 80
_SPEAKER: Final = 192
_VOICE_CODES: Final = 50
_CODES: Final = 6561
_KEPT_SIZES: Final = frozenset((1, 3, 7, 9, 11, 16, 18, 30, 6, 80))
"""Widths of kernels, bins, bands and harmonics: sizes that do not count channels."""


def tiny_voice_folder(root: Path) -> Path:
    """Return the folder below `root`; it is written if it is not there.

    Its name says what decides its bytes, so one that is there is whole and right.
    """
    toys = (_TOYS / TOKENIZER_FILE, _TOYS / SPEAKER_FILE)
    sources = (Path(__file__), Path(weight_rule.__file__), weight_rule.RULES_FILE, *toys)
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    folder = root / f"minicpmo-tiny-voice-{digest[:12]}"
    if folder.exists():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=root))
    try:
        write_tiny_voice(beside)
        beside.chmod(0o755)
        beside.rename(folder)
    except OSError:
        # Another writer was faster: what is there is the same.
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def write_tiny_voice(folder: Path) -> None:
    """Write the five files into an existing folder; equal bytes every time."""
    flow = {name: torch.from_numpy(make_tensor("flow", name)) for name in rules("flow")}
    torch.save(flow, folder / "flow.pt")
    hift = {name: torch.from_numpy(tensor) for name, tensor in _small_hift().items()}
    torch.save(hift, folder / "hift.pt")
    voice = tiny_voice()
    np.savez(folder / VOICE_FILE, codes=voice["codes"], mel=voice["mel"], speaker=voice["speaker"])
    for name in (TOKENIZER_FILE, SPEAKER_FILE):
        shutil.copyfile(_TOYS / name, folder / name)


def tiny_voice() -> Mapping[str, np.ndarray]:
    """Return the made-up voice: `codes` [50], `mel` float32 [100, 80], `speaker` [192]."""
    places = unit_noise("voice/codes", _VOICE_CODES) / np.sqrt(np.float32(3))
    return {
        "codes": ((places + 1) / 2 * (_CODES - 1)).astype(np.int64),
        "mel": unit_noise("voice/mel", 2 * _VOICE_CODES * _BANDS).reshape(-1, _BANDS),
        "speaker": unit_noise("voice/speaker", _SPEAKER),
    }


def _small_hift() -> Mapping[str, Float32]:
    return {name: _small_tensor(name, rule) for name, rule in rules("hift").items()}


def _small_tensor(name: str, rule: TensorRule) -> Float32:
    shrunk = _PUBLISHED_CHANNELS // _CHANNELS
    shape = tuple(size if size in _KEPT_SIZES else size // shrunk for size in rule.shape)
    noise = unit_noise(f"small/{name}", prod(shape)).reshape(shape)
    return noise * np.float32(rule.std) + np.float32(rule.mean)
