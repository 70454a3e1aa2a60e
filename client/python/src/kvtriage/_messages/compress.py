"""Compress requests as messages, and their answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvtriage._link.memory_ids import MemoryIds
from kvtriage._messages.bad_answer import malformed
from kvtriage._messages.build import bits, build, int32_bytes
from kvtriage._messages.cache import tensor_message
from kvtriage._messages.kept_sets import kept_sets_of
from kvtriage._messages.policy import parts_of, policy_message
from kvtriage._messages.sequence import group_message, sequence_message, table_of
from kvtriage.compress import (
    Act,
    AngleMode,
    ColumnSums,
    CompressRequest,
    CopyTo,
    InPlace,
    KeptFormat,
    KeysOnly,
    LengthRule,
    QueryOutput,
    QueryWindow,
    ReadyAttention,
    ScoreInputs,
    SelectOnly,
    Sequence,
)
from kvtriage.compress_result import CompressResult, LayerOutcome, Quality, SequenceResult, Timing
from kvtriage.errors import bad_argument
from kvtriage.v1 import triage_pb2, types_pb2


def _source_of(inputs: ScoreInputs, ids: MemoryIds) -> dict[str, Any]:
    kinds = triage_pb2.ScoreInputs
    source = inputs.source
    if isinstance(source, QueryWindow):
        return {"query": build(kinds.QueryWindow, q=tensor_message(source.q, ids), stage=source.stage)}
    if isinstance(source, QueryOutput):
        one_pass = build(
            kinds.QueryOutput,
            q=tensor_message(source.q, ids),
            stage=source.stage,
            o=tensor_message(source.o, ids),
            lse=tensor_message(source.lse, ids),
            lse_base=source.lse_base,
        )
        return {"query_output": one_pass}
    if isinstance(source, ReadyAttention):
        ready = build(
            kinds.ReadyAttention,
            a=tensor_message(source.a, ids),
            z=tensor_message(source.z, ids),
            o=tensor_message(source.o, ids),
        )
        return {"attention": ready}
    if isinstance(source, ColumnSums):
        sums = build(kinds.ColumnSums, sums=tensor_message(source.sums, ids), heads=source.heads)
        return {"column_sums": sums}
    if isinstance(source, KeysOnly):
        return {"keys_only": kinds.KeysOnly()}
    raise bad_argument(f"not a score source: {source!r}", "inputs.source")


def inputs_message(inputs: ScoreInputs, ids: MemoryIds) -> triage_pb2.ScoreInputs:
    return build(
        triage_pb2.ScoreInputs,
        softmax_scale=inputs.softmax_scale,
        logit_softcap=inputs.logit_softcap,
        output_projection=tensor_message(inputs.output_projection, ids),
        query_mean=tensor_message(inputs.query_mean, ids),
        query_covariance=tensor_message(inputs.query_covariance, ids),
        sink_logits=tensor_message(inputs.sink_logits, ids),
        alibi_slopes=tensor_message(inputs.alibi_slopes, ids),
        **_source_of(inputs, ids),
    )


def act_message(act: Act, renumber: AngleMode | None, ledger_slot: int, ids: MemoryIds) -> triage_pb2.Act:
    kinds = triage_pb2.Act
    turned = None if renumber is None else build(kinds.Renumber, angles=renumber)
    if isinstance(act, CopyTo):
        return kinds(copy_to=kinds.CopyTo(cache_id=ids.of_cache(act.cache)), renumber=turned)
    if isinstance(act, InPlace):
        return kinds(in_place=kinds.InPlace(ledger_slot=ledger_slot), renumber=turned)
    if isinstance(act, SelectOnly):
        return kinds(select_only=kinds.SelectOnly(), renumber=turned)
    # The class instead of an object of it, say: taken for another act, it would be believed to have moved rows.
    raise bad_argument(f"not an act: {act!r}", "act")


def output_message(lengths: LengthRule, kept_format: KeptFormat) -> triage_pb2.Output:
    return build(triage_pb2.Output, format=kept_format, lengths=lengths)


def compress_message(
    request: CompressRequest, ledger_slot: int, ids: MemoryIds
) -> triage_pb2.CompressRequest:
    measure = request.measure
    return build(
        triage_pb2.CompressRequest,
        cache_id=ids.of_cache(request.cache),
        layers_le=int32_bytes(request.layers, "layers"),
        sequences=[
            sequence_message(sequence, f"sequences[{i}]") for i, sequence in enumerate(request.sequences)
        ],
        policy=policy_message(request.policy),
        inputs=inputs_message(request.inputs, ids),
        act=act_message(request.act, request.renumber, ledger_slot, ids),
        output=output_message(request.lengths, request.kept_format),
        measure=triage_pb2.Measure(
            retained_mass=measure.retained_mass,
            output_error=measure.output_error,
            oracle_recall=measure.oracle_recall,
        ),
        keep_state=request.keep_state,
        group=group_message(request.group),
    )


# ---- answers ---------------------------------------------------------------------------------------


def _layer_of(message: triage_pb2.LayerOutcome) -> LayerOutcome:
    return LayerOutcome(
        layer=message.layer,
        kept=message.kept,
        dropped=message.dropped,
        trimmed=message.trimmed,
        nonfinite_tokens=message.nonfinite_tokens,
        skipped_rows=message.skipped_rows,
        stage1=message.stage1,
        stage2=message.stage2,
        lse_suspect=message.lse_suspect,
    )


def sequence_result_of(
    message: triage_pb2.SequenceResult,
    sequence: Sequence,
    act: Act,
    kept_format: KeptFormat,
    heads: tuple[int, ...],
) -> SequenceResult:
    """The answer for a sequence of the request; `heads` of each layer that the answer is about."""
    if message.sequence_id != sequence.sequence_id:
        raise malformed("results are of other sequences")
    table = table_of(sequence.destination if isinstance(act, CopyTo) else sequence.table)
    rewritten = np.zeros(0, np.int32)
    if not isinstance(act, SelectOnly):
        if message.blocks_used > len(table):
            raise malformed("blocks_used exceeds the table")
        table = table[: message.blocks_used]
        rewritten = np.flatnonzero(bits(message.rewritten_bitmap, len(table))).astype(np.int32)
    return SequenceResult(
        sequence_id=message.sequence_id,
        kv_revision=message.kv_revision,
        logical_len=message.logical_len,
        kept=message.kept,
        dropped=message.dropped,
        total_dropped=message.total_dropped,
        next_position=message.next_position,
        blocks_used=message.blocks_used,
        noop=message.noop,
        table=table,
        rewritten=rewritten,
        kept_sets=kept_sets_of(message.kept_sets, kept_format, sequence.physical_len, heads),
        layers=tuple(_layer_of(layer) for layer in message.layers),
    )


def _quality_of(message: triage_pb2.Quality) -> Quality:
    has = message.HasField
    return Quality(
        sequence_id=message.sequence_id,
        layer=message.layer,
        mass_mean=message.mass_mean if has("mass_mean") else None,
        mass_p5=message.mass_p5 if has("mass_p5") else None,
        error=message.error if has("error") else None,
        error_p95=message.error_p95 if has("error_p95") else None,
        recall_mean=message.recall_mean if has("recall_mean") else None,
        head_mass_mean=tuple(message.head_mass_mean),
        head_mass_low=tuple(message.head_mass_low),
        head_error=tuple(message.head_error),
        head_error_high=tuple(message.head_error_high),
        head_recall=tuple(message.head_recall),
    )


def timing_of(message: types_pb2.Timing) -> Timing:
    return Timing(message.queue, message.score, message.select, message.move, message.total)


def compress_result_of(
    response: triage_pb2.CompressResponse, request: CompressRequest, heads: tuple[int, ...]
) -> CompressResult:
    """INTERNAL (bad_answer) when the answer does not fit the request."""
    if len(response.results) != len(request.sequences):
        raise malformed("another number of results than sequences")
    return CompressResult(
        job_id=response.header.job_id,
        replayed=response.header.replayed,
        timing=timing_of(response.header.timing),
        policy=parts_of(response.policy),
        sequences=tuple(
            sequence_result_of(message, sequence, request.act, request.kept_format, heads)
            for message, sequence in zip(response.results, request.sequences)
        ),
        quality=tuple(_quality_of(message) for message in response.quality),
    )
