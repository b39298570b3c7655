"""What the client library does not drag in."""

import subprocess
import sys

import pytest

SERVICE = {"session", "stages", "serve_app", "ray", "fastapi", "uvicorn", "vllm", "torch"}
MODELS = {f"clients.{name}" for name in ("embedded", "minicpmo_4_5", "personaplex", "scripted")}


def loaded_by(module: str) -> set[str]:
    """Return the names of all modules in a fresh process that imported one."""
    script = f"import {module}, sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    ["clients.duplex", "clients.talk", "clients.load", "clients.echo_bench", "clients.presets"],
)
def test_the_client_loads_nothing_of_the_service(module: str) -> None:
    assert {name.partition(".")[0] for name in loaded_by(module)} & SERVICE == set()


def test_the_core_loads_no_preset_and_no_numpy() -> None:
    loaded = loaded_by("clients.duplex")
    assert loaded & MODELS == set()
    assert "numpy" not in loaded


@pytest.mark.parametrize("module", sorted(MODELS))
def test_a_preset_loads_no_client(module: str) -> None:
    assert "clients.duplex" not in loaded_by(module)
    assert "websockets" not in loaded_by(module)
