"""Asks a store questions: the values of a case, and what two cases differ by on the samples they share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kvtriage.eval.statistics import Interval, mean_interval, paired_interval
from kvtriage.eval.store import Record, Store

Values = Mapping[str, float]  # sample -> value


class Results:
    """The records of one measure, whole samples or not. All intervals are drawn with one seed."""

    def __init__(self, store: Store, measure: str, seed: int, **tags: str) -> None:
        self._seed = seed
        self._records: dict[str, dict[str, Record]] = defaultdict(dict)
        for record in store.select(measure=measure, **tags):
            self._records[record.key["case"]][record.key["sample"]] = record

    @property
    def cases(self) -> list[str]:
        """Labels in the order in which they were first measured."""
        return list(self._records)

    @property
    def samples(self) -> int:
        return len({sample for records in self._records.values() for sample in records})

    def values(self, case: str, field: str) -> Values:
        return {sample: record.values[field] for sample, record in self._records.get(case, {}).items()}

    def mean(self, case: str, field: str) -> Interval | None:
        """None when the case was not measured."""
        values = self.values(case, field)
        return mean_interval(list(values.values()), self._seed) if values else None

    def difference(self, ours: str, theirs: str, field: str) -> Interval | None:
        """`ours - theirs` on the samples that both were measured on; None without any."""
        one, other = self.values(ours, field), self.values(theirs, field)
        both = [sample for sample in one if sample in other]
        if not both:
            return None
        return paired_interval([one[s] for s in both], [other[s] for s in both], self._seed)
