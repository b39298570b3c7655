"""Reads Token2Wav's networks from the folder that a checkpoint keeps them in, and voices' prompts.

There are two layouts. `flow.pt` and `hift.pt` are what MiniCPM-o 4.5 was published with. A folder
with `hift_original.pt` is of a later generation, whose `hift.pt` is another network: it is refused,
because its tensors would be looked for in vain one by one.
"""

import pickle
import zipfile
from pathlib import Path
from typing import Final

import numpy as np
import torch

from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.flow import Flow
from stages.minicpmo.hift import PREFIX, Hift, take_hift
from stages.minicpmo.named_tensors import WrongTensors
from stages.minicpmo.voice_prompt import VoicePrompt

FLOW_FILE: Final = "flow.pt"
HIFT_FILE: Final = "hift.pt"
LATER_FILE: Final = "hift_original.pt"
VOICE_FILE: Final = "voice.npz"
"""The prompt of the voice that a folder brings along; no published one has it."""


def load_flow(
    folder: Path, noise: torch.Tensor, steps: int, device: torch.device, dtype: torch.dtype
) -> Flow:
    """Return the flow; raise CheckpointUnreadable, which names the file and what is wrong in it."""
    refuse_later_layout(folder)
    file = folder / FLOW_FILE
    tensors = read_tensors(file)
    try:
        return Flow.from_tensors(tensors, noise, steps, device, dtype)
    except WrongTensors as error:
        raise CheckpointUnreadable(file, str(error)) from error


def load_hift(folder: Path, device: torch.device) -> Hift:
    """Return the vocoder; raise CheckpointUnreadable, which names the file and what is wrong."""
    refuse_later_layout(folder)
    file = folder / HIFT_FILE
    tensors = read_tensors(file)
    if not any(name.startswith(PREFIX) for name in tensors):
        # As the network's own module saves it; the published file is of one that holds it.
        tensors = {f"{PREFIX}{name}": tensor for name, tensor in tensors.items()}
    try:
        return take_hift(tensors, device)
    except WrongTensors as error:
        raise CheckpointUnreadable(file, str(error)) from error


def read_prompt(file: Path) -> VoicePrompt:
    """Return a voice's prompt from an .npz of `codes`, `mel` [frames, bands] and `speaker`.

    Raises CheckpointUnreadable. Whether the parts fit the networks is asked when it is prepared.
    """
    try:
        with np.load(file, allow_pickle=False) as parts:
            codes, mel, speaker = parts["codes"], parts["mel"], parts["speaker"]
    except OSError as error:
        raise CheckpointUnreadable(file, f"can not be read: {error}") from error
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointUnreadable(file, f"no prompt of a voice: {error}") from error
    if (
        codes.ndim != 1
        or codes.dtype.kind not in "iu"
        or mel.dtype.kind + speaker.dtype.kind != "ff"
    ):
        raise CheckpointUnreadable(file, "codes are no row of integers, or the rest no numbers")
    return VoicePrompt(tuple(codes.tolist()), mel.astype(np.float32), speaker.astype(np.float32))


def refuse_later_layout(folder: Path) -> None:
    """Raise CheckpointUnreadable for a folder of the later generation."""
    later = folder / LATER_FILE
    if later.exists():
        raise CheckpointUnreadable(
            later,
            "this Token2Wav is of a later generation (its hift.pt is a causal vocoder), which this "
            f"service can not run: it needs {FLOW_FILE} and {HIFT_FILE} as published first",
        )


def read_tensors(file: Path) -> dict[str, torch.Tensor]:
    """Return a file's tensors on the CPU; raise CheckpointUnreadable if it holds anything else.

    Nothing in the file is ever run.
    """
    try:
        # Not mapped: a file that is replaced while it is read must not end the process.
        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointUnreadable(file, f"can not be read: {error}") from error
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointUnreadable(file, "damaged, or no file of tensors alone") from error
    if not isinstance(tensors, dict) or not tensors:
        raise CheckpointUnreadable(file, "not an object of tensors by name")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise CheckpointUnreadable(file, f"{name}: not a tensor by name")
        if not tensor.is_floating_point():
            raise CheckpointUnreadable(file, f"{name} of {tensor.dtype}, which is no plain number")
    return tensors
