"""Runs measures one sample after the other and keeps every result at once."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kvtriage.eval.measures.measure import Measure, Sample
from kvtriage.eval.progress import Progress
from kvtriage.eval.store import Store


def run(measures: Sequence[Measure], model: str, store: Store, progress: Progress) -> int:
    """Measures what the store lacks; returns how many records are new.

    Measures take turns in proportion to their samples, so that a run that is stopped has some of
    everything. Measures with the same name may share samples and cases: each pair is measured once.
    """
    new = 0
    turns = [
        ((number + 0.5) / len(samples), place, sample)
        for place, samples in enumerate(measure.samples() for measure in measures)
        for number, sample in enumerate(samples)
    ]
    turns.sort(key=lambda turn: turn[:2])
    progress.begin([place for _, place, _ in turns])
    for _, place, sample in turns:
        measure, started = measures[place], time.monotonic()
        missing = [
            case
            for case in measure.cases(sample)
            if record_key(measure.name, model, sample, case) not in store
        ]
        for case, values in measure.measure(sample, missing) if missing else ():
            store.add(record_key(measure.name, model, sample, case), values)
        new += len(missing)
        progress.sample(place, f"{measure.name} {sample.name}", len(missing), started)
    return new


def record_key(measure: str, model: str, sample: Sample, case: str) -> dict[str, str]:
    return {"measure": measure, "model": model, "sample": sample.name, "case": case, **sample.tags}
