"""The core needs NumPy and gRPC only."""

from __future__ import annotations

import subprocess
import sys


def test_torch_is_not_imported() -> None:
    code = "import sys, kvtriage; sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_eval_without_its_packages_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; from kvtriage.eval.command import main; sys.exit(main())"
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert ended.returncode == 1 and "kvtriage[eval]" in ended.stderr and "Traceback" not in ended.stderr
