"""The whole demo on a short prompt: it answers from the full cache, shows every policy, and ends."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[3] / "deploy" / "demo" / "llm"


def test_a_short_prompt(tmp_path: Path) -> None:
    picture = tmp_path / "llm.html"
    run = subprocess.run(
        [sys.executable, str(DEMO), "--tokens", "300", "--page", str(picture)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    table, _, strips = run.stdout.partition("Which tokens stayed")
    for name in ["full cache"] + [
        f"{policy} {share}%" for share in (60, 40, 20) for policy in ("snapkv", "snapkv+obc-key")
    ]:
        assert f"\n{name} " in table
        assert name == "full cache" or f"\n{name} " in strips
    answer = table.partition("tokens hides ")[2].partition(".")[0]
    assert answer.isdigit()
    full = next(line for line in table.splitlines() if line.startswith("full cache"))
    assert f"+ {answer}" in full and "100%" in full
    assert answer in picture.read_text(encoding="utf-8")
