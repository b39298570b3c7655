"""What the benchmark of whole conversations changes in a deploy file, and what it prints."""

from pathlib import Path

import pytest
import yaml

from serve_app.settings import AppArgs
from tools.bench.talks import FILES, HEADER, settings, talks_row
from tools.bench.talks_caller import Times
from tools.running_service import ROOT


@pytest.mark.parametrize("machine", FILES)
def test_the_deploy_file_stays_one_with_these_changes(machine: str, tmp_path: Path) -> None:
    tree = yaml.safe_load((ROOT / "deploy" / FILES[machine]).read_text(encoding="utf-8"))
    args = tree["applications"][0]["args"]
    for name, changes in settings(machine, tmp_path).items():
        args[name] = {**args.get(name, {}), **changes}
    AppArgs.model_validate(args)


def test_without_a_checkpoint_everything_is_made_up_in_the_published_sizes(tmp_path: Path) -> None:
    model = settings("h200", tmp_path)["model_settings"]
    assert {model[name]["load_format"] for name in ("language_model", "talker")} == {"dummy"}
    assert model["checkpoint"] == str(tmp_path)
    assert '"hidden_size": 4096' in (tmp_path / "config.json").read_text(encoding="utf-8")


def test_a_level_of_which_nothing_came_is_a_row_too() -> None:
    row = talks_row(4, 18, Times(), None, 20.0)
    assert row.count("|") == len(HEADER) + 1


def test_figures_of_several_processes_are_taken_together() -> None:
    times = Times(first_ms=[1.0], units=2, late_at_s=[3], cpu_s=0.5)
    times.add(Times(first_ms=[2.0], units=1, failures=["session 1: gone"], cpu_s=0.25))
    assert times.first_ms == [1.0, 2.0]
    assert (times.units, times.late_at_s, times.cpu_s) == (3, [3], 0.75)
    assert times.failures == ["session 1: gone"]
