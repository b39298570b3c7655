"""MiniCPM-o's Stage1 with toy weights on a device, held against recordings and against itself.

`python -m tools.bench.stage1_checked [--device cuda] [--parts sound,talker]` prints a table and
fails if a line of it is a fault. Numbers are float32, since the recordings are; vLLM's runner, its
scheduling and its CUDA graphs are those of the real model.
"""

import argparse
import asyncio
import os
import sys
import time
from typing import Final

import torch

from tools.bench.conditions import conditions
from tools.bench.stage1_outcomes import Outcomes

PARTS: Final = ("sound", "talker")


def main() -> int:
    """Check and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    given = parser.parse_args()
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    how = conditions(f"stage1_checked {' '.join(sys.argv[1:])}")
    print(how.replace("bench stage1", "bench.stage1"))
    print("| outcome | what | how |\n| --- | --- | --- |", flush=True)
    say = Outcomes()
    for part in given.parts.split(","):
        began_s = time.monotonic()
        try:
            _run(part, given.device, say)
        except Exception as error:  # noqa: BLE001 - the other part may still be had
            say.say(part, False, f"broke off: {error!r}")
        say.note(part, f"took {time.monotonic() - began_s:.0f} s")
    print(f"\n{say.faults} faults", flush=True)
    os._exit(min(say.faults, 1))  # the engine's processes end with this one


def _run(part: str, device: str, say: Outcomes) -> None:
    # The engine is started before torch works on the CPU, so the parts are imported apart.
    if part == "talker":
        from tools.bench.stage1_checked_talker import check_talker  # noqa: PLC0415

        asyncio.run(check_talker(device, say))
    elif part == "sound":
        from tools.bench.stage1_checked_sound import check_sound  # noqa: PLC0415

        check_sound(device, say)
    else:
        raise ValueError(f"there is no part {part}")


if __name__ == "__main__":
    sys.exit(main())
