"""The toy networks in the package are those that the tool writes."""

import onnx
import pytest

from tools.toy_voice_networks import FOLDER, toy_networks


@pytest.mark.parametrize("name", sorted(toy_networks()))
def test_the_packaged_file_is_what_the_tool_writes(name: str) -> None:
    packaged = onnx.load(FOLDER / name)
    # Compared as values: how they are laid out in bytes is the library's affair.
    assert packaged == toy_networks()[name]
    assert (FOLDER / name).stat().st_size < 10_000
