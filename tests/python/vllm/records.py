"""Reads what recording_connector.py wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from engine import Answer
from masked_reference import Compaction


def compactions_of(folder: Path, answer: Answer) -> list[Compaction]:
    """Of one request, in order, losses included."""
    found = []
    for path in sorted(folder.glob("[0-9]*.npz")):
        with np.load(path) as record:
            # The engine's id has a random end behind the last dash.
            if str(record["request"]).rpartition("-")[0] == answer.request.partition("-")[0]:
                found.append(Compaction(int(record["total"]), record.get("tokens")))
    return found


def longest_wait(folder: Path) -> float:
    """Seconds that a step spent in the plugin, at most."""
    return float(max(json.loads((folder / "waits.json").read_text())))


def pool_of(folder: Path) -> list[dict[str, int]]:
    """The block pool at every step."""
    return [json.loads(line) for line in (folder / "blocks.jsonl").read_text().splitlines()]
