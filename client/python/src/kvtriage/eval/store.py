"""Results on disk: one JSON line per thing that was measured, found again by what was run.

A run that was stopped goes on where it ended: a line is written whole and flushed before the next
sample begins, and a line that was cut off by the end of a process is dropped at the next start.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

log = logging.getLogger("kvtriage.eval.store")

Key = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Record:
    """`key` says what was run (measure, model, sample, case, ...), `values` what came out."""

    key: dict[str, str]
    values: dict[str, float]


def _name(key: Key) -> str:
    return json.dumps(dict(key), sort_keys=True)


class Store:
    """An append-only file of records; the newest record of a key counts.

    BlockingIOError when another process writes to it. Without `writable` it is read as it is now, also
    while a run goes on.
    """

    def __init__(self, path: Path, writable: bool = True) -> None:
        self._path = path
        self._records: dict[str, Record] = {}
        self._file: TextIO | None = None
        if writable:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
            self._lock(self._file)
        whole = self._read()
        if writable:
            os.truncate(path, whole)

    def _lock(self, file: TextIO) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise BlockingIOError(f"another process writes to {self._path}") from error

    def _read(self) -> int:
        """Takes in whole lines; returns where the last of them ends."""
        whole = 0
        with self._path.open("rb") as file:
            for line in file:
                try:
                    content = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    content = None
                if content is None:
                    log.warning("%s: dropping a line that was cut off at byte %d", self._path, whole)
                    break
                whole += len(line)
                record = Record(content["key"], content["values"])
                self._records[_name(record.key)] = record
        return whole

    def __contains__(self, key: Key) -> bool:
        return _name(key) in self._records

    def __len__(self) -> int:
        return len(self._records)

    def add(self, key: Key, values: Mapping[str, float]) -> None:
        """Keeps a record, on disk when it returns."""
        assert self._file is not None, "a store that was opened for reading"
        record = Record(dict(key), {name: float(value) for name, value in values.items()})
        self._records[_name(key)] = record
        self._file.write(json.dumps({"key": record.key, "values": record.values}, sort_keys=True) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def select(self, **key: str) -> Iterator[Record]:
        """All records whose key has these entries, in the order in which they were first added."""
        for record in self._records.values():
            if all(record.key.get(name) == value for name, value in key.items()):
                yield record

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
