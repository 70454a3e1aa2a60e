"""The command from end to end, with a tiny model and a service of its own."""

import json

import pytest
from kvtriage.eval.__main__ import main
from tiny_model import save

SMALL = [
    *("--samples", "2", "--context", "420", "--future", "16", "--budgets", "0.2", "0.5", "--seed", "3"),
    *("--policies", "streaming", "h2o", "h2o+obc-key", "--tasks", "needle-single"),
    *("--measures", "divergence", "recall", "perplexity", "retrieval", "blend", "--recall-windows", "1", "16"),
    *("--long-text", "120", "--chunk", "16", "--kept-tokens", "48"),
]


@pytest.fixture(scope="module")
def model(loaded, tmp_path_factory):
    return save(loaded, tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def program(kvtriaged, monkeypatch):
    monkeypatch.setenv("KVTRIAGED", kvtriaged)


def records(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_a_run_a_resumed_run_and_a_report(model, tmp_path, capsys):
    out = tmp_path / "out"
    run = ["run", "--model", str(model), "--out", str(out), *SMALL]
    assert main(run) == 0
    first = records(out)
    counts = {}
    for record in first:
        counts[record["key"]["measure"]] = counts.get(record["key"]["measure"], 0) + 1
    # Samples times cases: 2 x (3 policies x 2 budgets), 2 x 2 windows x 5 scorers, 2 x (3 policies and
    # the full cache), 2 x 2 settings x (6 cases and the full cache), (2 texts + 2 x 2 prompts) x 4 methods.
    assert counts == {"divergence": 12, "recall": 20, "perplexity": 8, "retrieval": 28, "blend": 24}

    assert main(run) == 1
    assert "go on with --resume" in capsys.readouterr().err
    assert main([*run, "--resume"]) == 0
    assert "0 new records" in capsys.readouterr().out
    assert records(out) == first

    assert main([*run, "--resume", "--seed", "4"]) == 1
    assert "has results of another seed, plan" in capsys.readouterr().err

    page = tmp_path / "page" / "EVAL.md"
    page.parent.mkdir()
    report = ["report", "--out", str(out), "--page", str(page), "--plots", str(tmp_path / "page" / "eval")]
    assert main(report) == 0
    text = page.read_text()
    for expected in ("`X+obc-key` is nearer", "h2o+obc-key - h2o", "Recall of the oracle (2 texts)", "* seed: 3"):
        assert expected in text
    for name in ("divergence", "retrieval", "recall"):
        assert f"](eval/{name}.svg)" in text and (page.parent / "eval" / f"{name}.svg").exists()
    before = text, (page.parent / "eval" / "recall.svg").read_text()
    assert main(report) == 0
    assert before == (page.read_text(), (page.parent / "eval" / "recall.svg").read_text())


def test_what_the_service_refuses_is_one_line(model, tmp_path, capsys):
    run = ["run", "--model", str(model), "--out", str(tmp_path / "out"), *SMALL, "--policies", "snapkb"]
    assert main(run) == 1
    assert "kvtriage-eval: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--model", "nowhere"], "no model at nowhere"),
        (["--pools", "median3"], "a pool is none, avgN or maxN"),
        (["--texts", "missing.txt"], "missing.txt"),
    ],
)
def test_bad_arguments_are_one_line(model, tmp_path, capsys, arguments, words):
    assert main(["run", "--model", str(model), "--out", str(tmp_path / "out"), *arguments]) == 1
    assert words in capsys.readouterr().err


def test_no_results_no_report(tmp_path, capsys):
    assert main(["report", "--out", str(tmp_path)]) == 1
    assert "no results in" in capsys.readouterr().err


def test_a_sweep_of_parts(model, tmp_path):
    run = ["run", "--model", str(model), "--out", str(tmp_path), "--samples", "2", "--context", "200"]
    run += ["--future", "8", "--measures", "divergence", "--policies", "snapkv", "snapkv+drop", "streaming"]
    run += ["--budgets", "0.2", "--windows", "default", "16", "--recent-shares", "0", "default"]
    assert main(run) == 0
    assert len(records(tmp_path)) == 2 * (2 * 4 + 1)
    assert main(["report", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "EVAL.md").read_text()
    assert "| snapkv w=16 recent=0 |" in text and "| snapkv recent=0 |" in text
    assert "At 20% kept the lowest KL of the 6 swept is" in text
