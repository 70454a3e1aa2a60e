"""What a run was made with, for the head of its page. Kept beside the results, seconds added up over restarts."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from kvtriage.eval.plan import Plan

PACKAGES = ("kvtriage", "torch", "transformers", "numpy")


def describe(model: str, texts: list[str], seed: int) -> dict[str, str]:
    return {
        "model": model,
        "texts": ", ".join(texts),
        "seed": str(seed),
        "versions": ", ".join(
            [f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in PACKAGES)]
        ),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed: run from a checkout)"


class RunLog:
    """plan.json and about.json of a results folder."""

    def __init__(self, folder: Path) -> None:
        self._plan, self._about = folder / "plan.json", folder / "about.json"

    def read(self) -> dict[str, str]:
        """Empty when nothing was run yet."""
        if not self._about.exists():
            return {}
        content: dict[str, str] = json.loads(self._about.read_text(encoding="utf-8"))
        return content

    def begin(self, plan: Plan, about: dict[str, str]) -> None:
        """ValueError when the results that are there were made with another plan, model, text or version."""
        before = self.read()
        changed = [name for name in about if name in before and before[name] != about[name]]
        if self._plan.exists() and self._plan.read_text(encoding="utf-8") != plan.to_json():
            changed.append("plan")
        if changed:
            names = ", ".join(changed)
            raise ValueError(f"{self._plan.parent} has results of another {names}: name another folder")
        self._plan.write_text(plan.to_json(), encoding="utf-8")
        self._write({**about, "seconds": before.get("seconds", "0")})

    def add(self, seconds: float) -> None:
        """Called when a run ends, also when it was stopped: what ran counts.

        The machine's load is noted beside the seconds: well above its CPUs, others were at work too.
        """
        about = self.read()
        total = float(about["seconds"]) + seconds
        load = f"{os.getloadavg()[2]:.1f} (15 minutes, at the end)"
        self._write({**about, "seconds": f"{total:.0f}", "load average": load})

    def _write(self, about: dict[str, str]) -> None:
        self._about.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
