"""Results on disk: one JSON line per thing that was measured, found again by what was run.

A run that was stopped goes on where it ended: a line is written whole and flushed before the next
sample begins, and a line that was cut off by the end of a process is dropped at the next start.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """An append-only file of records. One process writes at a time; the newest record of a key counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[str, Record] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._read()
        self._file = path.open("a", encoding="utf-8")

    def _read(self) -> None:
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
        os.truncate(self._path, whole)

    def __contains__(self, key: Key) -> bool:
        return _name(key) in self._records

    def __len__(self) -> int:
        return len(self._records)

    def add(self, key: Key, values: Mapping[str, float]) -> None:
        """Keeps a record, on disk when it returns."""
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
        self._file.close()
