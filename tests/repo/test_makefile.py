"""`make test` runs every kind of test once, and vLLM comes in only where it is needed."""

import re
import tomllib
from pathlib import Path

import pytest

from stages.plugins import BUILT_IN
from tests.support import groups

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
GROUPS = ("pure", "models", "vllm", "serve", "browser", "clients")


def target(name: str) -> str:
    """Return a target's line and recipe."""
    found = re.search(
        rf"^{re.escape(name)}:.*\n(?:\t.*\n|(?:else|endif|ifeq.*)\n)*", MAKEFILE, re.M
    )
    assert found is not None, name
    return found[0]


ORDERS = {"fresh_cluster"}
"""Markers that say when a test runs, not in which group."""


def markers() -> set[str]:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed: list[str] = config["tool"]["pytest"]["ini_options"]["markers"]
    return {marker.partition(":")[0] for marker in listed}


def test_make_test_runs_all_groups() -> None:
    assert f"for group in {' '.join(GROUPS)}; do" in target("test")
    assert {*GROUPS, "soak"} == set(groups.GROUPS)
    assert markers() - ORDERS == set(groups.MARKERS)


@pytest.mark.parametrize("group", GROUPS)
def test_a_target_runs_its_group(group: str) -> None:
    assert re.findall(r"pytest .*", target(f"test-{group}"))[0].split()[1] == f"--group={group}"


def test_vllm_is_not_installed_for_the_service_alone() -> None:
    heads = {name: target(name).splitlines()[0] for name in ("serve", "talk", "load")}
    heads |= {stamp: target(f"$(VENV)/{stamp}").splitlines()[0] for stamp in (".dev", ".serve")}
    assert [name for name, head in heads.items() if "vllm" in head] == []
    assert "tools.deploy needs $(DEPLOY)" in target("serve")


def test_only_a_deploy_file_that_asks_for_vllm_needs_it() -> None:
    from tools.deploy import models_of, needs_vllm  # noqa: PLC0415 - loads Serve's settings

    text = (ROOT / "deploy" / "duplex.yaml").read_text()
    (light,) = models_of(text, {})
    assert not needs_vllm(light)
    (heavy,) = models_of(text.replace("model_settings: {}", "model_settings: {engine: vllm}"), {})
    assert needs_vllm(heavy)


def test_every_model_of_minicpmo_needs_vllm() -> None:
    from tools.deploy import ON_VLLM, models_of, needs_vllm  # noqa: PLC0415

    paths = {name for name, path in BUILT_IN.items() if path.startswith("stages.minicpmo.")}
    assert paths == ON_VLLM
    (tiny,) = models_of((ROOT / "deploy" / "minicpmo_tiny.yaml").read_text(), {})
    assert needs_vllm(tiny)
