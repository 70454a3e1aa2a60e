"""A worker's connection to kvtriaged: attaching, lending and calling in one object."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from collections.abc import Sequence as Seq
from types import TracebackType
from typing import final

from kvtriage._calls.compress_call import CompressCall, without_effect
from kvtriage._calls.layers_call import LayersCall
from kvtriage._calls.observe_call import ObserveCall, observe_without_effect, run_rewind
from kvtriage._calls.rows_call import FuseCall, RerotateCall
from kvtriage._calls.writing_call import CallContext
from kvtriage._link import deadline as clock
from kvtriage._link.keeper import Keeper
from kvtriage._link.link import Link
from kvtriage._link.memory_book import Lot
from kvtriage._link.register import MAX_REGIONS_PER_CALL, new_key, register_lot, unregister_lot
from kvtriage._link.retry import with_retry
from kvtriage._messages.build import build
from kvtriage._messages.recompute import recompute_message, recompute_result_of
from kvtriage._messages.server_info import memory_list_of, server_info_of
from kvtriage.blend import FuseRequest, RerotateRequest, RowsOutcome
from kvtriage.cache_description import Cache, Region
from kvtriage.compress import CompressRequest
from kvtriage.compress_result import CompressOutcome, Outcome
from kvtriage.errors import Code, KvtriageError, bad_argument, local_error
from kvtriage.layer_stream import LayerStream
from kvtriage.lent_memory import MemoryList, Registered, Registration, Released
from kvtriage.observe import ObserveOutcome, ObserveRequest, RewindRequest, RewindResult
from kvtriage.options import CALL, DEFAULT_ENDPOINT, UNREGISTER, CallOptions, ConnectOptions
from kvtriage.recompute import RecomputeRequest, RecomputeResult
from kvtriage.server_info import ServerInfo
from kvtriage.session_state import SessionState
from kvtriage.v1 import admin_pb2, blend_pb2, memory_pb2, session_pb2, triage_pb2

_LAST_UNREGISTER = CallOptions(deadline_ms=1000)


@final
class Session:
    """Made by `kvtriage.connect`; a context manager.

    Thread-safe: many threads may use one session; calls about one sequence are ordered by the caller. Every
    call ends by its deadline, or a bounded time after it when a call that writes was cut off and its fate
    has to be settled. When the service restarts, a background thread attaches anew and registers everything
    again under the same handles; meanwhile writing calls return Outcome.UNAVAILABLE and the others raise
    KvtriageError (UNAVAILABLE, not_attached), at once.

    A process that forks must not use the child's copy: its calls fail at once (FAILED_PRECONDITION,
    forked). gRPC itself does not survive a fork either, so connect after forking, or start children with
    the methods "spawn" or "forkserver" of multiprocessing.

    A writing call (compress, observe, rerotate, fuse) that is interrupted by a signal handler's exception
    (KeyboardInterrupt) first makes sure that nothing of it runs any more, then lets the exception pass. What
    became of its sequences is then not said: recompute them.
    """

    def __init__(self, options: ConnectOptions) -> None:
        """Attaches and binds.

        UNAVAILABLE (socket_missing, not_kvtriage, fd_socket_missing, fd_socket_silent), PERMISSION_DENIED
        (socket_denied, fd_socket_denied, server_untrusted), FAILED_PRECONDITION (api_revision), and what the
        service refuses.
        """
        self._options = options
        self._keeper = Keeper(options)
        self._finalizer = weakref.finalize(self, Keeper.abandon, self._keeper)
        self._finalizer.atexit = False  # at the end of the process the keeper closes itself

    def close(self) -> None:
        """Says goodbye: the service unregisters everything.

        Waits at most a second for it, and one more for memory that has an owner (RegionSpec.owner).
        """
        if self._keeper.forked() or not self._finalizer.alive:
            return
        if self._keeper.book.owners():
            # What has an owner is not let go before the service has closed it.
            try:
                self.unregister_all(_LAST_UNREGISTER)
            except KvtriageError:
                self._keeper.keep_owners()
        self._finalizer.detach()
        self._keeper.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- how it stands ---------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Attached, bound and everything registered."""
        return self._link_if_alive() is not None

    @property
    def state(self) -> SessionState:
        return SessionState() if self._keeper.forked() else self._keeper.state()

    def wait_alive(self, timeout_ms: int) -> bool:
        """False after `timeout_ms`."""
        return not self._keeper.forked() and self._keeper.wait_alive(timeout_ms / 1000)

    def get_server_info(self, options: CallOptions = CALL) -> ServerInfo:
        response = self._keeper.current().transport.call(
            session_pb2.GetServerInfoRequest(),
            session_pb2.GetServerInfoResponse,
            clock.after_ms(options.deadline_ms),
        )
        return server_info_of(response)

    # ---- memory ----------------------------------------------------------------------------------

    def register(self, what: Registration, options: CallOptions = CALL) -> Registered:
        """Lends memory and describes the caches in it: all or nothing."""
        if len(what.regions) > MAX_REGIONS_PER_CALL:
            raise bad_argument(f"more than {MAX_REGIONS_PER_CALL} regions in one call", "regions")
        keeper = self._keeper
        keeper.current()  # before a lock that a fork may have left taken
        deadline = clock.after_ms(options.deadline_ms)
        with keeper.registering(deadline):
            link = keeper.current()
            lot = keeper.book.prepare(what.regions, what.caches)
            try:
                register_lot(link, lot, first=True, retry=options.retry, deadline=deadline)
            except BaseException:
                lot.close()
                raise
            keeper.book.enter(lot)
        return Registered(
            tuple(lent.region for lent in lot.regions), tuple(lent.cache for lent in lot.caches)
        )

    def unregister(
        self,
        regions: Seq[Region] = (),
        caches: Seq[Cache] = (),
        options: CallOptions = UNREGISTER,
    ) -> None:
        """Takes memory back. Returns when the service has closed its mappings: the memory may be freed.

        On DEADLINE_EXCEEDED it may not; call again. A cache goes with any of its regions. Handles that are
        not registered are skipped. Works without a service too: a lost session closes its mappings by
        itself, after its last job, and this waits for that.
        """
        self._unregister(lambda: self._keeper.book.find(regions, caches), options)

    def unregister_all(self, options: CallOptions = UNREGISTER) -> None:
        self._unregister(lambda: self._keeper.book.all(), options)

    def list_regions(self, options: CallOptions = CALL) -> MemoryList:
        """What the service believes to be lent by this session."""
        link = self._keeper.current()
        response = link.transport.call(
            memory_pb2.ListRegionsRequest(),
            memory_pb2.ListRegionsResponse,
            clock.after_ms(options.deadline_ms),
        )
        return memory_list_of(response, link.ids)

    # ---- calls about sequences ---------------------------------------------------------------------

    def compress(self, request: CompressRequest, options: CallOptions = CALL) -> CompressOutcome:
        """Scores, selects and (if asked) moves.

        Never ends in doubt: whatever happens to the service or the call, `fates` say what is true of the
        cache. Until it returns, the engine neither runs nor frees the sequences in the request.
        """
        try:
            context = self._context(request.cache, options)
        except KvtriageError as error:
            return without_effect(request, Outcome.UNAVAILABLE, error)
        return CompressCall(context, request).run()

    def open_layers(self, request: CompressRequest, options: CallOptions = CALL) -> LayerStream:
        """The same, layer by layer: kvtriage/layer_stream.py.

        The request's layers are those that will come; PER_SEQUENCE sets are refused. The deadline is that of
        the whole stream. An error: nothing happened to the cache.
        """
        call = LayersCall(self._context(request.cache, options), request)
        call.open()
        return LayerStream(call)

    def observe(self, request: ObserveRequest, options: CallOptions = CALL) -> ObserveOutcome:
        """Decode-time eviction.

        New rows are added to the service's running scores, and sequences over their budget are cut back.
        Ends like compress, never in doubt.
        """
        try:
            context = self._context(request.cache, options)
        except KvtriageError as error:
            return observe_without_effect(request, Outcome.UNAVAILABLE, error)
        return ObserveCall(context, request).run()

    def rewind(self, request: RewindRequest, options: CallOptions = CALL) -> RewindResult:
        """Draft rows were rejected: the scores are as if they had never come.

        An error: nothing was forgotten, or the session, and its running scores, are gone. NOT_FOUND
        (sequence_unknown): there are no scores; FAILED_PRECONDITION (rewind_too_far).
        """
        return run_rewind(self._context(Cache(), options), request)

    def select_recompute(self, request: RecomputeRequest, options: CallOptions = CALL) -> RecomputeResult:
        """Which rows of a glued sequence to recompute (HKVD). Writes nothing but the gathered rows."""
        link = self._keeper.current()
        message = recompute_message(request, link.ids)
        message.header.idempotency_key = new_key()
        deadline = clock.after_ms(options.deadline_ms)
        answer = blend_pb2.SelectRecomputeResponse
        response = with_retry(options.retry, deadline, lambda: link.transport.call(message, answer, deadline))
        return recompute_result_of(response)

    def rerotate(self, request: RerotateRequest, options: CallOptions = CALL) -> RowsOutcome:
        """Turns keys to other positions.

        Never ends in doubt; until it returns, the engine neither runs nor frees the sequence.
        """
        try:
            context = self._context(request.cache, options)
        except KvtriageError as error:
            return RowsOutcome(Outcome.UNAVAILABLE, error)
        return RerotateCall(context, request).run()

    def fuse(self, request: FuseRequest, options: CallOptions = CALL) -> RowsOutcome:
        """Writes recomputed rows over the cached ones. Ends like rerotate; the same call again repairs."""
        try:
            context = self._context(request.cache, options)
        except KvtriageError as error:
            return RowsOutcome(Outcome.UNAVAILABLE, error)
        return FuseCall(context, request).run()

    def release_sequences(self, sequence_ids: Seq[int], options: CallOptions = CALL) -> Released:
        """When it returns, no job touches the rows of these sequences: their blocks may be reused.

        Their running scores are gone: the same ids are new sequences.
        """
        request = build(triage_pb2.ReleaseSequenceRequest, sequence_ids=list(sequence_ids))
        response = self._keeper.current().transport.call(
            request, triage_pb2.ReleaseSequenceResponse, clock.after_ms(options.deadline_ms)
        )
        return Released(response.released, response.already_gone)

    def quiet(self, quarantine: int) -> bool:
        """Whether the blocks of an outcome's `quarantine` may be reused. Never blocks.

        They may when the service that might still write into them is gone or has closed the session.
        """
        return not self._keeper.forked() and self._keeper.quiet(quarantine)

    # ---- the doctor's round trip ---------------------------------------------------------------------

    def checksum(self, region: Region, offset: int, length: int, options: CallOptions = CALL) -> int:
        """The service's FNV-1a 64 over the bytes."""
        return self._probe("OP_CHECKSUM", region, offset, length, 0, options)

    def write_pattern(
        self, region: Region, offset: int, length: int, seed: int, options: CallOptions = CALL
    ) -> int:
        """The service writes 64-bit word i = splitmix64(seed + i), then answers the checksum."""
        return self._probe("OP_WRITE_PATTERN", region, offset, length, seed, options)

    # ---- shared ----------------------------------------------------------------------------------------

    def _context(self, cache: Cache, options: CallOptions) -> CallContext:
        keeper = self._keeper
        link = keeper.current()
        return CallContext(
            link=link,
            cache=keeper.book.spec_of(cache),
            options=options,
            settle_ms=self._options.settle_ms,
            quarantine=lambda: keeper.quarantine(link),
        )

    def _link_if_alive(self) -> Link | None:
        try:
            return self._keeper.current()
        except KvtriageError:
            return None

    def _unregister(self, find: Callable[[], Lot], options: CallOptions) -> None:
        keeper = self._keeper
        if keeper.forked():
            keeper.current()
        deadline = clock.after_ms(options.deadline_ms)
        with keeper.registering(deadline):
            lot = find()  # outlives the lock: owners that go with it may do as they like
            link = self._link_if_alive()
            if link is not None:
                unregister_lot(link, lot, deadline)
            if not keeper.wait_lost_quiet(deadline):
                text = "a lost session may still write into the memory"
                raise local_error(Code.DEADLINE_EXCEEDED, "session_not_quiet", text)
            keeper.book.remove(lot)

    def _probe(
        self, op: str, region: Region, offset: int, length: int, seed: int, options: CallOptions
    ) -> int:
        link = self._keeper.current()
        request = build(
            admin_pb2.ProbeMemoryRequest,
            region_id=link.ids.of_region(region),
            offset=offset,
            length=length,
            op=op,
            seed=seed,
        )
        answer = admin_pb2.ProbeMemoryResponse
        return link.transport.call(request, answer, clock.after_ms(options.deadline_ms)).checksum


def connect(
    endpoint: str = DEFAULT_ENDPOINT,
    *,
    client: str = "kvtriage-python",
    rank: int = 0,
    world_size: int = 0,
    server_uid: int | None = None,
    connect_ms: int = 5000,
    settle_ms: int = 35_000,
) -> Session:
    """Attaches to the kvtriaged at `endpoint` (the path of its socket). The arguments are ConnectOptions'."""
    return Session(
        ConnectOptions(
            endpoint=endpoint,
            client=client,
            rank=rank,
            world_size=world_size,
            server_uid=server_uid,
            connect_ms=connect_ms,
            settle_ms=settle_ms,
        )
    )
