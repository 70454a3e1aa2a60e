"""A compress whose layers the worker hands over one by one.

The service scores, selects and moves a layer while the worker computes the next one:

    with session.open_layers(request) as stream:      # the layers that will come, the policy
        for layer in layers:
            compute(layer)
            stream.ready(layer)
        outcome = stream.close()                      # the whole, as compress would give it

From open_layers until close (or cancel) returns, the engine neither runs nor frees the sequences; it may
write the rows of layers that are not ready, and their inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, final

from kvtriage.compress_result import CompressOutcome, CompressResult
from kvtriage.policy import PolicyParts


@dataclass(frozen=True, slots=True)
class LayerResult:
    layer: int  # index into CacheSpec.layers
    # Of this layer alone, without policy and quality. kv_revision is the same in all layers; lengths and
    # tables hold for the sequence only once all layers are done.
    result: CompressResult


class LayersCall(Protocol):
    """What a stream is made of (_calls/layers_call.py)."""

    policy: PolicyParts
    settled: bool

    def ready(self, layer: int) -> None: ...

    def next(self) -> LayerResult: ...

    def close(self) -> CompressOutcome: ...

    def cancel(self) -> CompressOutcome: ...


@final
class LayerStream:
    """Made by Session.open_layers. One thread may call `ready` while another calls `next`; `close` and
    `cancel` come alone and last. Leaving the `with` before cancels what has not been closed."""

    def __init__(self, call: LayersCall) -> None:
        self._call = call

    @property
    def policy(self) -> PolicyParts:
        """The policy that runs, expanded."""
        return self._call.policy

    def ready(self, layer: int) -> None:
        """Hands over a layer (index into CacheSpec.layers) whose rows and inputs are complete.

        Each of the request's layers once, in any order. Does not wait for its result. UNAVAILABLE
        (stream_over): the stream has ended already, `close` says why.
        """
        self._call.ready(layer)

    def next(self) -> LayerResult:
        """Waits for the next finished layer: they come in the order of `ready`.

        An error: the stream has ended, `close` says what is true of the cache. Optional: `close` returns all
        layers together.
        """
        return self._call.next()

    def close(self) -> CompressOutcome:
        """No more layers come. Waits for those that were handed over and says what became of the cache.

        Never ends in doubt. Without all announced layers the service refuses it (field_missing), and
        sequences of which some layers were moved are damaged.
        """
        return self._call.close()

    def cancel(self) -> CompressOutcome:
        """Gives up: layers that have not begun are dropped. Says what became of the cache."""
        return self._call.cancel()

    def __enter__(self) -> LayerStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._call.settled:
            self._call.cancel()
