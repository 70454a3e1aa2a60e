"""The program kvtriage-eval, which pip installs also where the packages that it needs are missing."""

from __future__ import annotations

import sys

_NEEDED = ("torch", "transformers", "gguf", "matplotlib")


def main() -> int:
    """What kvtriage.eval.__main__ returns; 1, and what to install, where that cannot be imported."""
    try:
        from kvtriage.eval.__main__ import main as evaluate
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        print(f"kvtriage-eval: no module {error.name}: pip install 'kvtriage[eval]'", file=sys.stderr)
        return 1
    return evaluate()
