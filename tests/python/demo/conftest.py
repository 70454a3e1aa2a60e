"""The demo's modules lie beside its program, and are found by its folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "deploy" / "demo" / "llm"))
