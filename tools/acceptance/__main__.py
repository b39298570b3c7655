"""The fixture contracts against the running service: `python -m tools.acceptance CONTRACT`.

model-policy       three different utterances in one stream, no commit, no hint: the model decides
response-required  one utterance, one commit, exactly one complete spoken response

It starts `deploy/duplex.yaml` on a free port, runs the contract, ends the service and leaves a
folder: result.json (verdict, commit, changed files, command, cleanup), client.jsonl, server.log,
reply_N.wav and transcripts.json.
"""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from tools.acceptance.contracts import CONTRACTS
from tools.acceptance.run import Origin, run_contract, write_result
from tools.running_service import ROOT, running_service
from tools.start_service import is_taken


def main() -> int:
    """Run one contract; return 0 when it passed."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.acceptance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("contract", choices=tuple(CONTRACTS))
    parser.add_argument("--out", type=Path, help="folder of this run (default: build/acceptance/…)")
    chosen = parser.parse_args()
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder: Path = chosen.out or ROOT / "build" / "acceptance" / f"{stamp}-{chosen.contract}"
    folder.mkdir(parents=True, exist_ok=True)
    origin = Origin.now(["python", "-m", "tools.acceptance", *sys.argv[1:]])
    with (
        (folder / "server.log").open("w+b") as log,
        running_service("duplex.yaml", log=log) as service,
    ):
        verdict = run_contract(chosen.contract, service.socket_url, service.get, folder, origin)
    verdict.faults["the_service_has_ended"] = (
        ["its port is still taken"] if is_taken("127.0.0.1", service.port) else []
    )
    write_result(verdict)
    for name, faults in verdict.faults.items():
        print(f"{'failed' if faults else 'passed'}  {name}")
        for fault in faults:
            print(f"        {fault}")
    print(f"{verdict.responses} responses; written to {folder}")
    return 0 if verdict.has_passed else 1


if __name__ == "__main__":
    sys.exit(main())
