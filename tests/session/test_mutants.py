"""The suite must notice: each named one-line fault makes the kernel's tests fail."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """One line of the kernel, done wrong."""

    name: str
    module: str
    line: str
    wrong: str


MUTANTS = [
    Mutant(
        "no fence check",
        "machine.py",
        "if self._state.fence.judge(stimulus.fence) is not FenceVerdict.CURRENT:",
        "if self._state.fence is None:",
    ),
    Mutant(
        "double terminal",
        "answering.py",
        "    item = state.history.get(response.item_id)\n    return [\n",
        "    item = state.history.get(response.item_id)\n    return 2 * [\n",
    ),
    Mutant(
        "lost roll back",
        "ledger/input.py",
        "        self._open.extendleft(reversed(reservation.spans))",
        "        self._open.extendleft(())",
    ),
    Mutant(
        "roll back in the wrong order",
        "ledger/input.py",
        "        self._open.extendleft(reversed(reservation.spans))",
        "        self._open.extend(reservation.spans)",
    ),
    Mutant(
        "reused response id",
        "answering.py",
        'ResponseId(state.ids.new("resp"))',
        'ResponseId("resp_1")',
    ),
    Mutant(
        "acknowledgement beyond what was sent",
        "ledger/playback.py",
        "max(cursor.played_ms, min(played_ms, limit))",
        "max(cursor.played_ms, played_ms)",
    ),
    Mutant(
        "an acknowledgement may go back",
        "ledger/playback.py",
        "max(cursor.played_ms, min(played_ms, limit))",
        "min(played_ms, limit)",
    ),
    Mutant(
        "closed before the release",
        "lifecycle.py",
        "(Life.OPEN, LifeTrigger.CLOSE_ASKED): Life.CLOSING",
        "(Life.OPEN, LifeTrigger.CLOSE_ASKED): Life.CLOSED",
    ),
    Mutant(
        "two units out",
        "pump.py",
        "if state.life is not Life.OPEN or state.append.is_busy:\n        return []\n    if",
        "if state.life is not Life.OPEN:\n        return []\n    if",
    ),
    Mutant(
        "numbers go on over a cancellation",
        "ledger/append.py",
        "        self.committed_seq = 0",
        "        self.committed_seq += 0",
    ),
    Mutant(
        "unpaired speech at the end",
        "on_lifecycle.py",
        "    effects = close_open_speech(state)\n    if state.response",
        "    effects: list[Effect] = []\n    if state.response",
    ),
    Mutant(
        "visible before there is output",
        "on_stage.py",
        "    response = state.response.active or reserve_answer(state, ResponseOptions())\n",
        "    response = state.response.active or reserve_answer(state, ResponseOptions())\n"
        "    if not response.is_visible: show_answer(state)\n",
    ),
    Mutant(
        "history keeps what was not heard",
        "answering.py",
        "        text=heard_text(state, response),\n",
        "        text=response.transcript,\n",
    ),
    Mutant(
        "settings change under a unit that is out",
        "pump.py",
        "    if state.updates:\n        return start_update(state)\n    promoted",
        "    promoted",
    ),
    Mutant(
        "a settings generation that no stage was told",
        "on_lifecycle.py",
        "    state.config = candidate\n",
        "    state.config = candidate\n    state.config_generation += 1\n",
    ),
    Mutant(
        "deferred overlap is forgotten",
        "pump.py",
        "    if state.response.active is not None or not state.input.has_deferred:\n",
        "    if True:\n",
    ),
]


@pytest.mark.timeout(150)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_suite_kills(mutant: Mutant, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "session", tmp_path / "session")
    shutil.copytree(ROOT / "tests/session", tmp_path / "tests/session")
    (tmp_path / "tests/session/test_mutants.py").unlink()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / "session" / mutant.module
    source = target.read_text()
    assert source.count(mutant.line) == 1, "the mutant's line has moved: adapt the mutant"
    target.write_text(source.replace(mutant.line, mutant.wrong))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "tests/session"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
        env={**os.environ, "KERNEL_TESTS_NO_SHRINK": "1"},
    )
    assert run.returncode == 1, f"survived: {mutant.name}\n{run.stdout[-2000:]}"
