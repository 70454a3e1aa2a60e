"""Makes a message, and names the field that does not fit."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from kvtriage.compress import Ints
from kvtriage.errors import bad_argument

M = TypeVar("M", bound=Message)


def build(kind: type[M], /, **fields: Any) -> M:
    """`kind(**fields)`. INVALID_ARGUMENT (bad_argument) with the field's name instead of protobuf's errors.

    A field that is None is left out.
    """
    try:
        return kind(**fields)
    except (TypeError, ValueError, OverflowError) as error:
        for name, value in fields.items():
            try:
                kind(**{name: value})
            except (TypeError, ValueError, OverflowError) as wrong:
                raise bad_argument(f"{kind.__name__}.{name} = {value!r}: {wrong}", name) from wrong
        raise bad_argument(f"{kind.__name__}: {error}") from error


def int32_bytes(values: Ints, name: str) -> bytes:
    """Little-endian int32. An int32 array is copied once; numbers outside int32 are refused."""
    array = np.asarray(values)
    if array.dtype != np.int32:
        if array.size == 0:
            return b""
        if array.dtype.kind not in "iu":
            raise bad_argument(f"{name}: whole numbers wanted, not {array.dtype}", name)
        if array.min() < -(1 << 31) or array.max() >= 1 << 31:
            raise bad_argument(f"{name}: a number does not fit 32 bits", name)
    if array.ndim != 1:
        raise bad_argument(f"{name}: one axis wanted, not {array.ndim}", name)
    return array.astype("<i4", copy=False).tobytes()


def int32_array(data: bytes) -> npt.NDArray[np.int32] | None:
    """A read-only view of the bytes; None when they are not whole numbers."""
    if len(data) % 4 != 0:
        return None
    return np.frombuffer(data, "<i4")


def bits(bitmap: bytes, count: int) -> npt.NDArray[np.bool_]:
    """The first `count` bits, lowest bit of a byte first; missing ones are not set."""
    found = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=None, bitorder="little")[:count]
    out = np.zeros(count, np.bool_)
    out[: len(found)] = found
    return out
