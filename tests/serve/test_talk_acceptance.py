"""The fixture contracts on the shipped service, as `python -m tools.acceptance` runs them.

Here the node is the one of all these tests; the command starts and ends its own.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.serve_cluster import ServeCluster
from tools.acceptance.run import Origin, Verdict, run_contract

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def address(cluster: ServeCluster) -> Iterator[str]:
    cluster.deploy("duplex.yaml")
    yield cluster.address
    cluster.delete()


def run(contract: str, address: str, folder: Path) -> Verdict:
    def get(path: str) -> bytes:
        with urlopen(f"http://{address}{path}", timeout=30) as answer:
            body: bytes = answer.read()
            return body

    url = f"ws://{address}/v1/realtime?duplex=1"
    return run_contract(contract, url, get, folder, Origin.now(["pytest", contract]))


def test_three_different_utterances_and_the_model_decides(address: str, tmp_path: Path) -> None:
    verdict = run("model-policy", address, tmp_path)
    assert {name: found for name, found in verdict.faults.items() if found} == {}
    # What this model is: it answers each of these.
    assert verdict.responses == 3
    spoken = json.loads((tmp_path / "transcripts.json").read_text())["replies"]
    assert len({reply["transcript"] for reply in spoken}) == 3


def test_one_utterance_has_one_complete_spoken_response(address: str, tmp_path: Path) -> None:
    verdict = run("response-required", address, tmp_path)
    assert {name: found for name, found in verdict.faults.items() if found} == {}
    assert verdict.responses == 1
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["verdict"] == "passed"
    assert written["cleanup"] == {"sessions_left": 0}
    assert {file.name for file in tmp_path.iterdir()} == {
        "client.jsonl",
        "reply_1.wav",
        "result.json",
        "transcripts.json",
    }
