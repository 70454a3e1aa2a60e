"""The core needs NumPy and gRPC only."""

from __future__ import annotations

import subprocess
import sys


def test_torch_is_not_imported() -> None:
    code = "import sys, kvtriage; sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
