"""The container file names only what exists, builds from the locks alone, and runs as a user.

No image is built here. What can be shown without building one: the file can be parsed, everything
it copies is there, and `make` finds all that its targets need among what was copied.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Containerfile").read_text()
KNOWN = {"FROM", "RUN", "USER", "WORKDIR", "ENV", "COPY", "EXPOSE"}
IMAGES = ("cpu", "gpu")


@dataclass
class Stage:
    """One stage of the file: where it starts from, and its instructions."""

    name: str
    source: str
    steps: list[tuple[str, str]] = field(default_factory=list)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction with its words, lines that go on joined; raise ValueError."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        name, _, words = line.partition(" ")
        if name not in KNOWN or not words.strip():
            raise ValueError(f"not an instruction that is used here: {line}")
        yield name, " ".join(words.split())


def stages(text: str) -> dict[str, Stage]:
    """Return the stages by name; raise ValueError for one that starts from nowhere."""
    found: dict[str, Stage] = {}
    for name, words in instructions(text):
        if name == "FROM":
            match = re.fullmatch(r"(\S+) AS (\w+)", words)
            if match is None:
                raise ValueError(f"a stage without a name: {words}")
            if "/" not in match[1] and match[1] not in found:
                raise ValueError(f"{match[2]} starts from {match[1]}, which is not there")
            found[match[2]] = Stage(match[2], match[1])
        elif not found:
            raise ValueError("the file must start with FROM")
        else:
            found[[*found][-1]].steps.append((name, words))
    return found


def whole(image: str) -> list[tuple[str, str]]:
    """Return all steps of an image, those of the stages it starts from first."""
    by_name = stages(TEXT)
    if image not in by_name:
        return []
    return whole(by_name[image].source) + by_name[image].steps


def copied(image: str) -> list[str]:
    """Return what an image takes from this repository."""
    found = []
    for name, words in whole(image):
        if name == "COPY":
            *sources, target = words.removeprefix("--chown=duplex:duplex ").split()
            assert target == "./" or [target] == sources
            found += sources
    return found


def make_targets(image: str) -> list[str]:
    """Return what an image has make build, in order."""
    runs = [words for name, words in whole(image) if name == "RUN"]
    return [target for run in runs for target in re.findall(r"(?:^|&& )make (\S+)", run)]


def dry_run(target: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Have make say what it would do, not as a part of the make that runs the tests."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--dry-run", target],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FRM a AS b\n", "not an instruction"),
        ("FROM docker.io/a AS b\nRUN\n", "not an instruction"),
        ("FROM docker.io/a\n", "without a name"),
        ("FROM a AS b\n", "which is not there"),
        ("RUN x\n", "must start with FROM"),
    ],
)
def test_a_fault_of_the_file_is_found(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        stages(text)


def test_the_last_image_is_the_one_that_runs_anywhere() -> None:
    assert list(stages(TEXT)) == ["base", "project", "gpu", "cpu"]


@pytest.mark.parametrize("image", IMAGES)
def test_everything_that_is_copied_is_there_and_not_kept_out(image: str) -> None:
    sources = copied(image)
    assert [source for source in sources if not (ROOT / source).exists()] == []
    kept = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    assert sorted(set(sources)) == sorted(kept)


@pytest.mark.parametrize("image", IMAGES)
def test_every_package_of_the_service_is_copied(image: str) -> None:
    packages = {file.parent.name for file in ROOT.glob("*/__init__.py")}
    assert packages - set(copied(image)) == set()


@pytest.mark.parametrize("image", IMAGES)
def test_make_finds_what_it_needs_among_what_was_copied(image: str, tmp_path: Path) -> None:
    for source in copied(image):
        at, to = ROOT / source, tmp_path / source
        shutil.copytree(at, to) if at.is_dir() else shutil.copy(at, to)
    targets = make_targets(image)
    assert targets[:2] == [".venv/.serve", ".venv/.project"]
    for target in targets:
        done = dry_run(target, tmp_path)
        assert done.returncode == 0, done.stderr
        assert "--require-hashes" in done.stdout


@pytest.mark.parametrize("image", IMAGES)
def test_a_lock_that_was_not_copied_would_be_missed(image: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for target in make_targets(image):
        assert dry_run(target, tmp_path).returncode != 0


def test_each_image_has_its_packages() -> None:
    assert make_targets("cpu") == [".venv/.serve", ".venv/.project"]
    assert make_targets("gpu") == [".venv/.serve", ".venv/.project", ".venv/.vllm-cuda"]
    assert ("RUN", "python -m stages.embedded.prepare") in whole("cpu")


@pytest.mark.parametrize("image", IMAGES)
def test_nothing_comes_from_the_network_but_packages(image: str) -> None:
    for name, words in whole(image):
        assert name != "ADD"
        if name == "RUN":
            assert re.findall(r"https?://|\bcurl\b|\bpip\b|\bgit\b", words) == []


@pytest.mark.parametrize("image", IMAGES)
def test_it_runs_as_the_user_of_the_pods(image: str) -> None:
    users = [words for name, words in whole(image) if name == "USER"]
    assert users[-1] == "duplex"
    runs = " ".join(words for name, words in whole(image) if name == "RUN")
    (uid,) = re.findall(r"useradd --uid (\d+)", runs)
    service = yaml.safe_load((ROOT / "k8s" / "base" / "rayservice.yaml").read_text())
    cluster = service["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group["template"]["spec"]["securityContext"]["runAsUser"] == int(uid)


def test_its_tags_are_those_of_the_overlays() -> None:
    named = set(re.findall(r"--tag (\S+)", TEXT))
    used = set()
    for file in (ROOT / "k8s" / "overlays").glob("*/kustomization.yaml"):
        (image,) = yaml.safe_load(file.read_text())["images"]
        used.add(f"{image['newName']}:{image['newTag']}")
    assert named == used
