"""What the service has to be told about the sequences of a batch, from call to call."""

from __future__ import annotations

import itertools

from kvtriage import Sequence, Sharing
from kvtriage.transformers.query_capture import QueryCapture

# Numbers of sequences, unique in this process and so in every session of it. A program that numbers
# sequences of its own in the same session stays below.
_IDS = itertools.count(1 << 40)


class SequenceBook:
    """Ids, generation, revisions and dropped rows. All sequences of a batch have one length."""

    def __init__(self, batch: int, renumber: bool) -> None:
        self.ids = [next(_IDS) for _ in range(batch)]
        self.generation = 0
        self.dropped = 0
        self._renumber = renumber
        self._revisions = [0] * batch

    def start_anew(self, dropped: int = 0) -> None:
        """The rows were replaced; `dropped` tokens of their text have none."""
        self.generation += 1
        self.dropped = dropped
        self._revisions = [0] * len(self._revisions)

    def evicted(self, dropped: int, revisions: list[int]) -> None:
        self.dropped += dropped
        self._revisions = revisions

    def revised(self, revision: int) -> None:
        """Rows of the only sequence were written, none dropped."""
        self._revisions = [revision]

    @property
    def position_gap(self) -> int:
        """Position of the next token minus its row."""
        return 0 if self._renumber else self.dropped

    def specs(self, rows: int, capture: QueryCapture | None, query_rows: int) -> list[Sequence]:
        """The sequences as they are now, with their newest `query_rows` captured queries."""
        return [
            Sequence(
                sequence_id=sequence_id,
                generation=self.generation,
                kv_revision=self._revisions[index],
                logical_len=rows + self.dropped,
                physical_len=rows,
                table=[index],
                sharing=Sharing.ALL_PRIVATE,
                rows_begin=capture.first_row(index, query_rows) if capture and query_rows else 0,
                rows_count=query_rows,
                # Only rows that were renumbered at every eviction have positions in common.
                positions=0 if self._renumber or self.dropped == 0 else None,
            )
            for index, sequence_id in enumerate(self.ids)
        ]
