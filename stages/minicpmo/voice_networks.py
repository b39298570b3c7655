"""The two networks that hear a voice's recording: its codes, and who speaks.

Both are published as ONNX files and run on the CPU, seldom and for about a second. Their inputs and
outputs are taken by position, for the published names are those of an exporter.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

from session.errors import StageFailed
from stages.log_mel import Floats
from stages.minicpmo.checkpoint_files import CheckpointUnreadable

TOKENIZER_FILE: Final = "speech_tokenizer_v2_25hz.onnx"
SPEAKER_FILE: Final = "campplus.onnx"
CODES: Final = 6561
"""The tokenizer's: 0 to 6560."""
SPEAKER_SIZE: Final = 192

_TOKENIZER_THREADS: Final = 4
"""It has the size of a language model of 100 million weights; the other one is small."""


class SpeechTokenizer:
    """Log-mel to codes, 25 a second."""

    def __init__(self, folder: Path) -> None:
        """Load it; raises CheckpointUnreadable."""
        self.file = folder / TOKENIZER_FILE
        self._network = _Network(self.file, inputs=2, threads=_TOKENIZER_THREADS)

    def codes(self, mel: Floats) -> tuple[int, ...]:
        """Return the codes of [128, frames], one for four frames. Raises StageFailed."""
        made = self._network.run([mel[None], np.array([mel.shape[1]], np.int32)])
        if made.dtype.kind not in "iu":
            raise StageFailed(f"{self.file.name} gives {made.dtype}, which are no codes")
        codes = tuple(int(code) for code in made.ravel())
        if not codes or not 0 <= min(codes) <= max(codes) < CODES:
            raise StageFailed(f"{self.file.name} gives codes that there are not")
        return codes


class SpeakerNetwork:
    """Fbank to a row that says who speaks."""

    def __init__(self, folder: Path) -> None:
        """Load it; raises CheckpointUnreadable."""
        self.file = folder / SPEAKER_FILE
        self._network = _Network(self.file, inputs=1, threads=1)

    def row(self, fbank: Floats) -> Floats:
        """Return float32 [192] for [frames, 80]. Raises StageFailed."""
        made = self._network.run([fbank[None]])
        if made.size != SPEAKER_SIZE or made.dtype != np.float32:
            raise StageFailed(
                f"{self.file.name} gives {made.dtype} {list(made.shape)}, "
                f"not float32 [1, {SPEAKER_SIZE}]"
            )
        return made.reshape(SPEAKER_SIZE)


class _Network:
    """An ONNX file that is loaded."""

    def __init__(self, file: Path, *, inputs: int, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Others want the cores that threads without work would keep busy.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not file.is_file():
            raise CheckpointUnreadable(file, "is missing")
        try:
            self._session = onnxruntime.InferenceSession(
                str(file), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise CheckpointUnreadable(file, f"damaged, or no ONNX network: {error}") from error
        self._file = file
        self._names = [one.name for one in self._session.get_inputs()]
        if len(self._names) != inputs:
            raise CheckpointUnreadable(
                file, f"another network: it has {len(self._names)} inputs, not {inputs}"
            )

    def run(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the first output."""
        feed: dict[str, Any] = dict(zip(self._names, values, strict=True))
        try:
            made = self._session.run(None, feed)
        except Exception as error:
            raise StageFailed(f"{self._file.name} can not be run: {error}") from error
        return np.asarray(made[0])
