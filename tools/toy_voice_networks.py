"""Writes the toy networks of a voice: `python -m tools.toy_voice_networks`.

They stand in for the published `speech_tokenizer_v2_25hz.onnx` and `campplus.onnx`, of which one is
half a gigabyte: the same inputs and outputs, and results that depend on the sound and mean nothing.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from stages.minicpmo.voice_networks import SPEAKER_FILE, SPEAKER_SIZE, TOKENIZER_FILE
from stages.minicpmo.weight_rule import unit_noise

FOLDER: Final = Path(__file__).parent.parent / "stages" / "minicpmo" / "tiny"

_OPSET: Final = 17
_IR_VERSION: Final = 8
_TOKENIZER_BANDS: Final = 128
_SPEAKER_BANDS: Final = 80
_DIGITS: Final = 8
"""A code has so many, of three values each, as in the published network."""
_NARROW: Final = 4


def toy_networks() -> dict[str, onnx.ModelProto]:
    """Return both by file name; equal every time."""
    return {TOKENIZER_FILE: _tokenizer(), SPEAKER_FILE: _speaker()}


def _tokenizer() -> onnx.ModelProto:
    """Return feats [1, 128, T], feats_length [1] -> codes int32 [1, ceil(ceil(T / 2) / 2)]."""
    halve: dict[str, Any] = {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}
    nodes = [
        helper.make_node("Slice", ["feats", "zero", "feats_length", "time"], ["heard"]),
        helper.make_node("Conv", ["heard", "conv1"], ["narrow"], **halve),
        helper.make_node("Conv", ["narrow", "conv2"], ["mixed"], **halve),
        # Differences within a code, so that loudness alone does not decide all digits.
        helper.make_node("ReduceMean", ["mixed"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["mixed", "mean"], ["digits"]),
        helper.make_node("Mul", ["digits", "gain"], ["loud"]),
        helper.make_node("Tanh", ["loud"], ["bounded"]),
        helper.make_node("Round", ["bounded"], ["ternary"]),
        helper.make_node("Add", ["ternary", "one"], ["positive"]),
        helper.make_node("Mul", ["positive", "powers"], ["parts"]),
        helper.make_node("ReduceSum", ["parts", "bands"], ["sums"], keepdims=0),
        helper.make_node("Cast", ["sums"], ["codes"], to=TensorProto.INT32),
    ]
    weights: dict[str, np.ndarray] = {
        "zero": np.array([0], np.int32),
        "time": np.array([2], np.int32),
        "bands": np.array([1], np.int64),
        "conv1": _noise("tokenizer/conv1", _NARROW, _TOKENIZER_BANDS, 3),
        "conv2": _noise("tokenizer/conv2", _DIGITS, _NARROW, 3),
        "gain": np.array(3, np.float32),
        "one": np.array(1, np.float32),
        "powers": (3.0 ** np.arange(_DIGITS)).astype(np.float32)[None, :, None],
    }
    return _model(
        "toy_speech_tokenizer",
        nodes,
        weights,
        inputs=[
            helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, _TOKENIZER_BANDS, "T"]),
            helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1]),
        ],
        output=helper.make_tensor_value_info("codes", TensorProto.INT32, [1, "N"]),
    )


def _speaker() -> onnx.ModelProto:
    """Return fbank [1, T, 80] -> row [1, 192]: what the bands' loudness over time comes to."""
    nodes = [
        helper.make_node("Mul", ["fbank", "fbank"], ["squares"]),
        helper.make_node("ReduceMean", ["squares"], ["power"], axes=[1], keepdims=0),
        helper.make_node("Sqrt", ["power"], ["spread"]),
        helper.make_node("MatMul", ["spread", "narrow"], ["few"]),
        helper.make_node("Tanh", ["few"], ["bounded"]),
        helper.make_node("MatMul", ["bounded", "wide"], ["row"]),
    ]
    weights: dict[str, np.ndarray] = {
        "narrow": _noise("speaker/narrow", _SPEAKER_BANDS, 2 * _NARROW),
        "wide": _noise("speaker/wide", 2 * _NARROW, SPEAKER_SIZE),
    }
    return _model(
        "toy_speaker",
        nodes,
        weights,
        inputs=[helper.make_tensor_value_info("fbank", TensorProto.FLOAT, [1, "T", 80])],
        output=helper.make_tensor_value_info("row", TensorProto.FLOAT, [1, SPEAKER_SIZE]),
    )


def _noise(name: str, *shape: int) -> np.ndarray:
    """Return noise that neither grows nor fades from its inputs to its outputs."""
    noise = unit_noise(f"toy/{name}", int(np.prod(shape))).reshape(shape)
    sums = shape[0] if len(shape) == 2 else shape[1] * shape[2]
    scaled: np.ndarray = (noise / np.sqrt(np.float32(sums))).astype(np.float32)
    return scaled


def _model(
    name: str,
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    *,
    inputs: list[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(values, one) for one, values in weights.items()]
    graph = helper.make_graph(nodes, name, inputs, [output], tensors)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Write both files."""
    for name, model in toy_networks().items():
        file = FOLDER / name
        file.write_bytes(model.SerializeToString(deterministic=True))
        print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
