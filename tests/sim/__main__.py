"""`python -m tests.sim`: thousands of simulated worlds on all cores."""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.sim.coverage import INTERESTING
from tests.sim.simulate import Failure, live, replay, shortened
from tests.sim.story import parse

DEFAULT_SESSIONS = 10_000
CHUNK = 50
MAX_REPORTS = 5
ENOUGH = 5_000
"""With fewer worlds something rare may be missing by chance."""


def main() -> int:
    """Run what the command line asks for; 1 when a law was broken or something never happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--sessions", type=int, default=DEFAULT_SESSIONS)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seed", type=int, help="one world, its story printed when it fails")
    parser.add_argument("--story", type=Path, help="with --seed: replay the steps of this file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if asked.seed is not None:
        return _one(asked.seed, asked.story)
    return _many(range(asked.first, asked.first + asked.sessions), asked.jobs)


def _many(seeds: range, jobs: int) -> int:
    began_s, n_done, n_told = time.monotonic(), 0, 0
    seen: Counter[str] = Counter()
    failures: list[Failure] = []
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    with multiprocessing.Pool(jobs) as pool:
        for counts, failed in pool.imap_unordered(_chunk, chunks):
            seen += counts
            failures += failed
            n_done += CHUNK
            if time.monotonic() - began_s > 5 * (n_told + 1):
                n_told += 1
                rate = n_done / (time.monotonic() - began_s)
                _say(f"{n_done} of {len(seeds)} sessions, {rate:.0f} a second")
    rate = len(seeds) / (time.monotonic() - began_s)
    _say("\n".join(f"{count:>9}  {name}" for name, count in sorted(seen.items())))
    for failure in failures[:MAX_REPORTS]:
        _say(shortened(failure).report())
    missing = sorted(name for name in INTERESTING if not seen[name])
    _say(f"{len(seeds)} sessions, {rate:.0f} a second, {len(failures)} that break a law")
    if missing and len(seeds) >= ENOUGH:
        _say(f"never happened: {', '.join(missing)}")
    return int(bool(failures) or (bool(missing) and len(seeds) >= ENOUGH))


def _chunk(seeds: range) -> tuple[Counter[str], list[Failure]]:
    seen: Counter[str] = Counter()
    failures = []
    for seed in seeds:
        counts, failure = live(seed)
        seen += counts
        if failure is not None:
            failures.append(failure)
    return seen, failures


def _one(seed: int, story: Path | None) -> int:
    if story is not None:
        law = replay(seed, parse(story.read_text()))
        _say(law or "no law is broken")
        return int(law is not None)
    _, failure = live(seed)
    if failure is None:
        _say(f"seed {seed}: no law is broken")
        return 0
    _say(shortened(failure).report())
    return 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
