"""The keys in force: those given at the start and those in a file, which may change.

Rule 1: a key is looked up by its SHA-256 and what is found is compared in constant time, so that
        the time taken says nothing about a key that is in force, nor grows with their number.
Rule 2: a file that can not be read, or has a wrong line, changes nothing, and is logged and
        counted once for each change. At the start a wrong line is a fault.
"""

import hashlib
import hmac
import logging
from collections.abc import Iterable
from pathlib import Path

from serve_app.access.key_file import ApiKey, KeyFileError, nameless, read_keys
from serve_app.access.principal import Principal, QuotaPatch
from serve_app.metrics.definitions import KEY_FILE_FAULTS
from serve_app.metrics.meter import NO_METER, Meter

log = logging.getLogger(__name__)


class KeyTable:
    """The keys of one moment, found at once however many there are.

    Of two that are the same, the first one counts: that of the file has a name.
    """

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self.keys = tuple(keys)
        self._by_digest: dict[bytes, ApiKey] = {}
        self._terms: dict[Principal, dict[str, int | None]] = {}
        for key in self.keys:
            self._by_digest.setdefault(_digest(key.value), key)
            self._terms.setdefault(key.principal, {}).update(key.terms.changes)

    def owner(self, presented: str) -> Principal | None:
        """Return whose key `presented` is; None when it is none of the keys."""
        found = self._by_digest.get(_digest(presented))
        if found is None:
            return None
        is_it = hmac.compare_digest(presented.encode(), found.value.encode())
        return found.principal if is_it else None

    def knows(self, principal: Principal) -> bool:
        """Whether one of the keys is of this owner."""
        return principal in self._terms

    def terms(self, principal: Principal) -> QuotaPatch:
        """Return what is set for an owner, by whichever of its keys."""
        return QuotaPatch(tuple(self._terms.get(principal, {}).items()))


class KeyRing:
    """The keys of one list, as they are now.

    Raises KeyFileError when the file is there and has a wrong line at the start.
    """

    def __init__(
        self, given: Iterable[str] = (), file: Path | None = None, *, meter: Meter = NO_METER
    ) -> None:
        self._given = tuple(nameless(key.strip()) for key in given if key.strip())
        self._file = file
        self._meter = meter
        self._from_file: tuple[ApiKey, ...] = ()
        self._table = KeyTable(self._given)
        self._read_at: tuple[int, int, int] | None = None
        self._trouble = ""
        self._refresh()

    @property
    def is_configured(self) -> bool:
        """Whether keys are asked for, also while there is none."""
        return self._file is not None or bool(self._given)

    @property
    def is_empty(self) -> bool:
        """Whether there is no key at all."""
        return not self._keys().keys

    def owner(self, presented: str) -> Principal | None:
        """Return whose key `presented` is; None when it is none of the keys."""
        return self._keys().owner(presented)

    def holds(self, presented: str) -> bool:
        """Whether `presented` is one of the keys."""
        return self.owner(presented) is not None

    def knows(self, principal: Principal) -> bool:
        """Whether a key of this owner is in force."""
        return self._keys().knows(principal)

    def terms(self, principal: Principal) -> QuotaPatch:
        """Return what is set for an owner, by whichever of its keys."""
        return self._keys().terms(principal)

    def _keys(self) -> KeyTable:
        """Return the keys in force."""
        try:
            self._refresh()
        except KeyFileError as error:
            self._meter.count(KEY_FILE_FAULTS, "wrong")
            log.error("%s; its keys stay as they are", error)
        return self._table

    def _refresh(self) -> None:
        """Read the file again when it has changed; raises KeyFileError, once for each change."""
        if self._file is None:
            return
        try:
            stat = self._file.stat()
            stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if stamp == self._read_at:
                self._trouble = ""
                return
            written = self._file.read_bytes()
        except OSError as error:
            if str(error) != self._trouble:  # it is read at every request
                self._meter.count(KEY_FILE_FAULTS, "unreadable")
                log.warning("a file of keys can not be read, its keys stay as they are: %s", error)
            self._trouble = str(error)
            return
        self._trouble = ""
        self._read_at = stamp
        self._from_file = _keys_in(self._file, written)
        self._table = KeyTable(self._from_file + self._given)
        names = {key.principal.name for key in self._from_file}
        log.info("%s was read: %d keys, %d names", self._file, len(self._from_file), len(names))
        if not self._from_file and not self._given:
            log.error("%s has no key in it: it lets nobody in until it has one", self._file)


def check_key_file(file: Path | None) -> None:
    """Raise KeyFileError where a file of keys is there and has a wrong line."""
    if file is None:
        return
    try:
        written = file.read_bytes()
    except OSError:
        return  # it may still come, and whoever needs its keys tells of it
    _keys_in(file, written)


def _keys_in(file: Path, written: bytes) -> tuple[ApiKey, ...]:
    try:
        return read_keys(written)
    except KeyFileError as error:
        raise KeyFileError(f"{file}: {error}") from None


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
