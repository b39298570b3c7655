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
        "    if state.append.is_busy:\n        return promoted\n    if state.updates:\n",
        "    if state.updates:\n",
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
        "    if state.updates:\n        return promoted + start_update(state)\n",
        "",
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
    Mutant(
        "a frame goes with the rest of its append",
        "ledger/spans.py",
        "        return replace(self, pcm=self.pcm[:n_bytes]), rest\n",
        "        return replace(self, pcm=self.pcm[:n_bytes], video_frames=()), rest\n",
    ),
    Mutant(
        "audio that comes back goes behind its item",
        "ledger/input.py",
        "        if reservation.serial != self.open_item.serial:\n",
        "        if False:\n",
    ),
    Mutant(
        "silence goes in front of a rest",
        "pump.py",
        "    if due is not None and now >= due:\n        return ledger.reserve_open",
        "    if due is None:\n        return ledger.reserve_open",
    ),
    Mutant(
        "a new owner inherits the count of silence",
        "ledger/append.py",
        "return self._continuations if owner == self._continued else 0",
        "return self._continuations",
    ),
    Mutant(
        "a commit takes the turn that the session has got to",
        "user_items.py",
        "    return target.turn\n",
        "    return state.fence.turn\n",
    ),
    Mutant(
        "an utterance takes what follows it",
        "on_input.py",
        "    if state.config.auto_response or not any(isinstance(edge, Offset) for edge in edges):",
        "    if True:",
    ),
    Mutant(
        "deferred overlap does not count",
        "ledger/input.py",
        "len(self._turns) + int(self.has_deferred)",
        "len(self._turns)",
    ),
    Mutant(
        "cancelled input comes back",
        "on_input.py",
        '    state.input.discard_waiting("cancelled")\n',
        '    state.input.discard_open("cancelled")\n',
    ),
    Mutant(
        "a user who says nothing is asked for ever",
        "idle_user.py",
        "    watch.has_asked = True\n",
        "    watch.has_asked = False\n",
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
