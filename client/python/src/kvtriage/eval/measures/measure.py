"""What the runner knows of a measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Sample:
    """One thing to measure on. `tags` go into the record's key beside the name (a task, a setting)."""

    name: str
    tags: dict[str, str] = field(default_factory=dict)


class Measure(Protocol):
    @property
    def name(self) -> str: ...

    def samples(self) -> Sequence[Sample]:
        """In the order in which they run, so that a run that is stopped has measured whole samples."""
        ...

    def cases(self, sample: Sample) -> Sequence[str]:
        """Labels of what is compared on this sample."""
        ...

    def measure(self, sample: Sample, cases: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
        """Measures these cases (some of `cases(sample)`): one (label, values) each, as soon as known."""
        ...
