"""How far a policy changes what the model says next, on plain text.

The text is read up to a cut, a policy chooses what stays, and the true tokens that follow are fed. The
divergence is the mean Kullback-Leibler divergence (nats) of the predictions after each of them from those
of the full cache. It needs no task and is the most sensitive measure here. Beside it stand what the same
choice does to the attention outputs, on the rows just before the cut and on those after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from kvtriage.eval.cases import Case
from kvtriage.eval.continuation import Continuation
from kvtriage.eval.measures.fidelity import AttentionRows
from kvtriage.eval.measures.measure import Sample
from kvtriage.eval.reading import Reading
from kvtriage.eval.selection import longest, mean_kept, select
from kvtriage.eval.texts import Passage

BATCH = 8  # policies that go on side by side
FIDELITY_ROWS = 32  # query rows on either side of the cut


class Divergence:
    name = "divergence"

    def __init__(
        self, reading: Reading, passages: Sequence[Passage], cut: int, cases: Sequence[Case]
    ) -> None:
        """Every passage is longer than `cut`; what follows the cut is predicted."""
        self._reading, self._cut = reading, cut
        self._passages = {passage.name: passage for passage in passages}
        self._cases = {case.label: case for case in cases}

    def samples(self) -> list[Sample]:
        return [Sample(f"{name}/{self._cut}") for name in self._passages]

    def cases(self, sample: Sample) -> list[str]:
        return list(self._cases)

    def measure(self, sample: Sample, cases: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
        reading = self._reading
        ids = self._passages[sample.name.rpartition("/")[0]].ids
        full = torch.log_softmax(reading.read(ids, self._cut), -1)
        future = torch.tensor(ids[self._cut :])
        before = AttentionRows(reading, self._cut - FIDELITY_ROWS, FIDELITY_ROWS)
        after = AttentionRows(reading, self._cut, min(FIDELITY_ROWS, len(future)))
        chosen = {label: select(reading, self._cases[label].to_policy()) for label in cases}
        # Lists of like length go together: a batch is padded to its longest.
        order = sorted(cases, key=lambda label: longest(chosen[label]))
        for start in range(0, len(order), BATCH):
            labels = order[start : start + BATCH]
            going_on = Continuation(reading, [chosen[label] for label in labels], len(future))
            logits = going_on.forward(future, len(future))
            for label, rows in zip(labels, logits):
                window, later = before.outcome(chosen[label]), after.outcome(chosen[label])
                yield (
                    label,
                    {
                        "kl": mean_divergence(full, rows),
                        "kept": mean_kept(chosen[label]),
                        "window_error": window.error,
                        "window_mass": window.mass,
                        "later_error": later.error,
                        "later_mass": later.mass,
                    },
                )


def mean_divergence(full_log_probs: torch.Tensor, logits: torch.Tensor) -> float:
    """Mean over rows of KL(full || other). full_log_probs [rows, V] in nats, logits [rows, V]."""
    other = torch.log_softmax(logits, -1)
    terms = (full_log_probs.exp() * (full_log_probs - other)).sum(-1)
    return float(terms.double().mean())
