"""Drains a running service and waits until nothing is left: `make drain`, and the hook of a pod.

Rule 1: it shows what it waits for, and ends with 0 only when neither session nor socket is left.
Rule 2: an admin key comes from where `tools.admin_key` finds it.
Rule 3: with `--only-here` the service is drained only if its gateway runs on this node. Elsewhere
        the hook waits if a drain goes on, so that a stage does not go before the last answer.
Rule 4: it ends with 0 when nothing is left, also where the deadline cut somebody; its last line
        then says how many. 1: the service refuses or is gone. 3: the drain was taken back.
"""

import argparse
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from serve_app.clock import unix_now_s
from tools.admin_key import find_key, new_parser

PATH: Final = "/admin/drain"
POLL_S: Final = 1.0
TELL_EVERY_S: Final = 10.0
FOLLOW_S: Final = 15.0
"""Pods that are deleted together do not begin together: so long a drain may take to begin."""
PATIENCE_S: Final = 30.0
"""A service that does not answer for so long is gone."""
OVERTIME_S: Final = 60.0
"""So long after its deadline a drain may take: a session is over when its stages are free, and a
stage call that hangs is given up after `stage_timeout_s`, 30 s as it comes."""
NOT_DRAINED: Final = 1
TAKEN_BACK: Final = 3
HANGS: Final = 4


class NotAnswered(Exception):
    """The service could not be asked, or refused; says why."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final
        """Whether asking again is of no use."""


@dataclass(frozen=True, slots=True)
class View:
    """What a gateway says of its drain."""

    state: str
    sessions: dict[str, int]
    sockets: int
    deadline: int | None
    cut_sessions: int
    node: str

    def __str__(self) -> str:
        states = ", ".join(f"{n} {state}" for state, n in self.sessions.items() if n)
        total = sum(self.sessions.values())
        return f"{total} sessions ({states or 'none'}), {self.sockets} sockets"


@dataclass(frozen=True, slots=True)
class Door:
    """The operator's door of one service."""

    url: str
    key: str | None

    def ask(self, method: str, fields: dict[str, Any] | None = None) -> View:
        """Send a request; raise NotAnswered."""
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        body = None if fields is None else json.dumps(fields).encode()
        address = self.url.rstrip("/") + PATH
        request = urllib.request.Request(address, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise NotAnswered(_reason(error), is_final=error.code < 500) from None
        except (OSError, ValueError) as error:
            raise NotAnswered(f"{address} does not answer: {error}", is_final=False) from None
        return View(**{name: told[name] for name in View.__slots__})


@dataclass(frozen=True, slots=True)
class Time:
    """The clock, and what waits."""

    now: Callable[[], float] = time.monotonic
    unix_now: Callable[[], float] = unix_now_s
    sleep: Callable[[float], None] = time.sleep


def drain(door: Door, within_s: float | None, clock: Time, say: Callable[[str], None]) -> int:
    """Ask for a drain and wait until it is over; return the exit status."""
    try:
        view = door.ask("POST", {} if within_s is None else {"within_s": within_s})
    except NotAnswered as error:
        say(str(error))
        return NOT_DRAINED
    return wait(door, view, clock, say)


def wait(door: Door, view: View, clock: Time, say: Callable[[str], None]) -> int:
    """Wait until a drain is over; return the exit status."""
    told, told_at_s, answered_at_s = "", 0.0, clock.now()
    while view.state == "draining":
        if str(view) != told or clock.now() - told_at_s >= TELL_EVERY_S:
            told, told_at_s = str(view), clock.now()
            say(f"draining: {told} left")
        if view.deadline is not None and clock.unix_now() >= view.deadline + OVERTIME_S:
            say(f"not drained {OVERTIME_S:g} s after the deadline, a stage may hang: {view} left")
            return HANGS
        clock.sleep(POLL_S)
        try:
            view = door.ask("GET")
            answered_at_s = clock.now()
        except NotAnswered as error:
            if error.is_final or clock.now() - answered_at_s >= PATIENCE_S:
                say(str(error))
                return NOT_DRAINED
    if view.state == "drained":
        cut = view.cut_sessions
        say("drained: nothing is left" + (f"; {cut} sessions cut at the deadline" if cut else ""))
        return 0
    say("not drained: the drain was taken back, or the gateway was started anew")
    return TAKEN_BACK


def leave_node(
    door: Door, node: str, within_s: float | None, clock: Time, say: Callable[[str], None]
) -> int:
    """Do what a node has to do before it goes; return the exit status."""
    until_s = clock.now() + FOLLOW_S
    while True:
        try:
            view = door.ask("GET")
        except NotAnswered as error:
            say(str(error))
            return NOT_DRAINED
        if view.node == node:
            return drain(door, within_s, clock, say)
        if view.state != "serving":
            return wait(door, view, clock, say)
        if clock.now() >= until_s:
            say(f"the gateway is on {view.node} and serves on")
            return 0
        clock.sleep(POLL_S)


def own_address() -> str:
    """Return this machine's address in its network, found as Ray finds it; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))
        except OSError:
            return socket.gethostbyname(socket.gethostname())
        address: str = probe.getsockname()[0]
        return address


def main(arguments: list[str]) -> int:
    """Drain the service that is named, or take that back."""
    options = parser().parse_args(arguments)
    door, clock = Door(options.url, find_key(os.environ, options.key_file)), Time()
    if options.cancel:
        try:
            view = door.ask("DELETE")
        except NotAnswered as error:
            _say(str(error))
            return NOT_DRAINED
        _say(f"{view.state}: {view}")
        return 0
    if options.only_here:
        return leave_node(door, own_address(), options.within_s, clock, _say)
    return drain(door, options.within_s, clock, _say)


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = new_parser("tools.drain", __doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--within-s", type=float, help="how long it may take")
    parser.add_argument("--only-here", action="store_true", help="only if its gateway is here")
    parser.add_argument("--cancel", action="store_true", help="take new sessions again")
    return parser


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return f"{error.code}: {json.load(error)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{error.code}: {error.reason}"


def _say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
