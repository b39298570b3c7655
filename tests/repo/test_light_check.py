"""A deploy file is checked before vLLM is installed: only what serve.lock brings may be needed."""

import re
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = sorted((ROOT / "deploy").glob("*.yaml"))
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

sys.meta_path.insert(0, Missing())
from serve_app.check import main
sys.exit(main(sys.argv[1:]))
"""


def locked(name: str) -> set[str]:
    """Return the packages of a lock."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    return {match.lower().replace("_", "-") for match in re.findall(r"^([\w.-]+)==", text, re.M)}


@cache
def only_with_vllm() -> frozenset[str]:
    """Return the modules here that vllm.lock brings and serve.lock does not."""
    light, heavy = locked("serve"), locked("vllm")
    modules = set()
    for module, names in packages_distributions().items():
        packages = {name.lower().replace("_", "-") for name in names}
        if packages & heavy and not packages & light:
            modules.add(module)
    # Ray brings one of its own.
    return frozenset((modules | {"torch", "vllm"}) - {"psutil"})


@pytest.mark.parametrize("file", DEPLOY, ids=lambda file: file.name)
def test_a_deploy_file_is_checked_without_vllm(file: Path) -> None:
    program = WITHOUT.format(missing=sorted(only_with_vllm()))
    checked = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
