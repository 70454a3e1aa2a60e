"""Results survive their process and are never measured twice."""

import logging
from contextlib import closing

import pytest
from kvtriage.eval.measures.measure import Sample
from kvtriage.eval.progress import Progress
from kvtriage.eval.results import Results
from kvtriage.eval.runner import record_key, run
from kvtriage.eval.store import Store


class Counting:
    """Cases a, b on samples 0 .. 2; says what it was asked and may stop in the middle."""

    name = "counting"

    def __init__(self, stop_after=None):
        self.asked, self.stop_after = [], stop_after

    def samples(self):
        return [Sample(str(number), {"kind": "odd" if number % 2 else "even"}) for number in range(3)]

    def cases(self, sample):
        return ["a", "b"]

    def measure(self, sample, cases):
        for case in cases:
            if self.stop_after is not None and len(self.asked) == self.stop_after:
                raise KeyboardInterrupt
            self.asked.append((sample.name, case))
            yield case, {"value": float(sample.name) + (case == "b")}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "results.jsonl"


def test_a_stopped_run_goes_on_where_it_ended(path, capsys):
    first = Counting(stop_after=3)
    with closing(Store(path)) as store, pytest.raises(KeyboardInterrupt):
        run([first], "model", store, Progress())
    second = Counting()
    with closing(Store(path)) as store:
        assert run([second], "model", store, Progress()) == 3
        assert len(store) == 6
    assert first.asked + second.asked == [(s, c) for s in "012" for c in "ab"]
    third = Counting()
    with closing(Store(path)) as store:
        assert run([third], "model", store, Progress()) == 0
    assert third.asked == []
    assert "3/3 counting 2: there already" in capsys.readouterr().err


def test_another_model_is_another_result(path):
    with closing(Store(path)) as store:
        run([Counting()], "one", store, Progress())
        other = Counting()
        run([other], "two", store, Progress())
    assert len(other.asked) == 6


def test_a_line_that_was_cut_off_is_dropped_and_written_anew(path, caplog):
    key = record_key("m", "model", Sample("s"), "case")
    with closing(Store(path)) as store:
        store.add(key, {"x": 1.0})
        store.add({**key, "case": "other"}, {"x": 2.0})
    path.write_bytes(path.read_bytes()[:-7])
    with caplog.at_level(logging.WARNING), closing(Store(path)) as store:
        assert key in store and {**key, "case": "other"} not in store
        store.add({**key, "case": "other"}, {"x": 3.0})
    assert "cut off" in caplog.text
    with closing(Store(path)) as store:
        assert [record.values["x"] for record in store.select(measure="m")] == [1.0, 3.0]


def test_one_process_writes_and_others_may_read(path):
    key = record_key("m", "model", Sample("s"), "case")
    with closing(Store(path)) as store:
        store.add(key, {"x": 1.0})
        with pytest.raises(BlockingIOError, match="another process writes to"):
            Store(path)
        with closing(Store(path, writable=False)) as reader:
            assert key in reader
    with closing(Store(path)) as store:  # free again
        assert key in store


def test_results_pair_by_sample(path):
    with closing(Store(path)) as store:
        run([Counting()], "model", store, Progress())
        store.add(record_key("counting", "model", Sample("9", {"kind": "odd"}), "a"), {"value": 100.0})
        results = Results(store, "counting", seed=0)
        assert results.cases == ["a", "b"] and results.samples == 4
        difference = results.difference("b", "a", "value")
        assert (difference.mean, difference.low, difference.high, difference.count) == (1.0, 1.0, 1.0, 3)
        assert results.mean("c", "value") is None and results.difference("a", "c", "value") is None
        assert Results(store, "counting", seed=0, kind="even").samples == 2


class Longer(Counting):
    name = "longer"

    def samples(self):
        return [Sample(str(number)) for number in range(6)]


def test_measures_take_turns_in_proportion(path):
    order = []

    class Noting(Progress):
        def sample(self, kind, name, cases, started):
            order.append(name)

    with closing(Store(path)) as store:
        run([Longer(), Counting()], "model", store, Noting())
    expected = ["l 0", "c 0", "l 1", "l 2", "c 1", "l 3", "l 4", "c 2", "l 5"]
    assert [f"{name[0]} {name[-1]}" for name in order] == expected
