"""What is said of an answer that does not fit its request."""

from __future__ import annotations

from kvtriage.errors import Code, KvtriageError, local_error


def malformed(what: str) -> KvtriageError:
    return local_error(Code.INTERNAL, "bad_answer", what)
