"""Runs MiniCPM-o's engine on a checkpoint until it is killed: `python -m … FOLDER`."""

import asyncio
import sys
from pathlib import Path

from tests.support.running_minicpmo import running_minicpmo


async def run(folder: Path) -> None:
    """Say when the engine runs, and wait."""
    async with running_minicpmo(folder):
        sys.stdout.write("running\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
