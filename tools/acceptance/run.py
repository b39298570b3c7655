"""One run of a contract: talk, clean up, judge, and write down all of it."""

import asyncio
import json
import urllib.error
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from clients.provenance import Provenance, provenance
from tools.acceptance.checks import CHECKS, replies, transcripts
from tools.acceptance.client_log import ClientLog
from tools.acceptance.contracts import CONTRACTS
from tools.acceptance.inputs import MODEL_POLICY, RESPONSE_REQUIRED, Input
from tools.acceptance.sound import Reply, write_replies
from tools.bench.conditions import git

CLEAN_WITHIN_S: Final = 20.0
INPUTS: Final[dict[str, tuple[Input, ...]]] = {
    "model-policy": MODEL_POLICY,
    "response-required": (RESPONSE_REQUIRED,),
}
Get = Callable[[str], bytes]
"""Returns the body of an HTTP GET of the service."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run is made of. Taken before the service starts, which loads this code."""

    commit: str
    changed_files: list[str]
    made: Provenance

    @classmethod
    def now(cls, argv: Sequence[str]) -> Self:
        """Describe the working tree and the machine."""
        changed = git("status", "--porcelain").splitlines()
        return cls(git("rev-parse", "HEAD"), changed, provenance(argv))


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ended."""

    contract: str
    faults: dict[str, list[str]]
    """By check; every check is named, and has an empty list when it passed."""
    responses: int
    sessions_left: int | None
    """After the close; None when the gateway did not say."""
    origin: Origin
    folder: Path

    @property
    def has_passed(self) -> bool:
        """Whether no check found a fault."""
        return not any(self.faults.values())


def run_contract(contract: str, socket_url: str, get: Get, folder: Path, origin: Origin) -> Verdict:
    """Run a contract against a service that is ready, and write the run's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "client.jsonl").open("w") as file:
        log = ClientLog(file)
        broke = _talked(contract, socket_url, log)
    sessions = asyncio.run(_sessions_left(get))
    sounds, texts = replies(log.lines), transcripts(log.lines)
    heard = write_replies(folder, sounds, texts)
    faults = {check.__name__: check(log.lines) for check in CHECKS[contract]}
    faults["the_run_went_through"] = broke
    faults["no_session_is_left"] = [] if sessions == 0 else [f"/health: sessions {sessions}"]
    faults["replies_are_valid_and_understood"] = [
        f"{reply.file}: {fault}" for reply in heard for fault in reply.faults
    ]
    _write(folder / "transcripts.json", _transcripts(log, heard))
    verdict = Verdict(contract, faults, len(sounds), sessions, origin, folder)
    write_result(verdict)
    return verdict


def write_result(verdict: Verdict) -> None:
    """Write what became of a run, and of what it was made."""
    _write(
        verdict.folder / "result.json",
        {
            "contract": verdict.contract,
            "verdict": "passed" if verdict.has_passed else "failed",
            "faults": verdict.faults,
            **asdict(verdict.origin),
            "inputs": [asdict(spoken) for spoken in INPUTS[verdict.contract]],
            "responses": verdict.responses,
            "cleanup": {"sessions_left": verdict.sessions_left},
        },
    )


def _talked(contract: str, socket_url: str, log: ClientLog) -> list[str]:
    try:
        asyncio.run(_as_coroutine(contract, socket_url, log))
    except Exception as error:  # noqa: BLE001 - whatever breaks the talk is the run's result
        log.note("broken", error=f"{type(error).__name__}: {error}")
        return [f"{type(error).__name__}: {error}"]
    return []


async def _as_coroutine(contract: str, socket_url: str, log: ClientLog) -> None:
    await CONTRACTS[contract](socket_url, log)


async def _sessions_left(get: Get) -> int | None:
    """Return how many sessions the gateway still has; it may take a moment to let go of one."""
    left: int | None = None
    try:
        async with asyncio.timeout(CLEAN_WITHIN_S):
            while left != 0:
                health: dict[str, Any] = json.loads(await asyncio.to_thread(get, "/health"))
                left = int(health["sessions"])
                await asyncio.sleep(0 if left == 0 else 0.2)
    except (TimeoutError, urllib.error.URLError, OSError):
        return left
    return left


def _transcripts(log: ClientLog, heard: Sequence[Reply]) -> dict[str, object]:
    understood = [
        line.event.get("transcript")
        for line in log.lines
        if line.kind == "conversation.item.input_audio_transcription.completed"
    ]
    return {"user_as_understood": understood, "replies": [asdict(reply) for reply in heard]}


def _write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")
