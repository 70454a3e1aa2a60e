"""Where rows lie: the formulas by hand, against vLLM's own writer, and a wrong rule that is noticed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kvtriage.vllm.layout import Layout, cache_spec, prove_layout
from kvtriage.vllm.versions import UnsupportedEngine
from vllm.platforms import current_platform
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    current_platform.import_kernels()


def _attention(isa: str) -> Any:
    impl = object.__new__(CPUAttentionBackendImpl)  # its constructor wants a whole engine
    impl.attn_type, impl.kv_cache_dtype = "decoder", "auto"
    return SimpleNamespace(impl=impl, isa=isa, _k_scale_float=1.0, _v_scale_float=1.0)


@pytest.mark.parametrize("slots", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vllms_writer_agrees(slots: int, dtype: torch.dtype) -> None:
    prove_layout(Layout(5, 2, slots, 64), _attention("vec"), dtype)


@pytest.mark.parametrize("slots", [32, 64])
def test_packed_rows_are_noticed(slots: int) -> None:
    """isa amx packs both; where the machine has no AMX the writer may not be there."""
    attention = _attention("amx")
    try:
        with pytest.raises(UnsupportedEngine, match="unsupported layout"):
            prove_layout(Layout(5, 2, slots, 64), attention, torch.bfloat16)
    except RuntimeError as error:
        pytest.skip(f"no such writer here: {error}")


@pytest.mark.parametrize("slots", [32, 64])
def test_offsets_by_hand(slots: int) -> None:
    layout = Layout(blocks=5, heads=3, slots=slots, dim=32)
    bytes_of_layer = 5 * 3 * slots * 64 * 4
    spec = cache_spec(layout, torch.float32, [0, bytes_of_layer], q_heads=6)
    flat = torch.arange(2 * 5 * 3 * slots * 64)
    for number, layer in enumerate(spec.layers):
        for block, head, slot, elem in [(0, 0, 0, 0), (4, 2, slots - 1, 31), (1, 2, 17, 5)]:
            start = ((number * 5 + block) * 3 + head) * slots * 64
            for view, place in ((layer.k, elem * slots + slot), (layer.v, 32 * slots + slot * 32 + elem)):
                at = (
                    view.offset
                    + block * view.block_stride
                    + head * view.head_stride
                    + slot * view.slot_stride
                    + elem * view.elem_stride
                )
                assert flat[at // 4] == start + place


def test_a_tensor_of_another_form_is_refused() -> None:
    for cache in (
        torch.zeros(2, 3, 4),
        torch.zeros(2, 3, 4, 5),
        torch.zeros(2, 3, 8, 4).transpose(1, 2),
        torch.zeros(2, 3, 4, 8, dtype=torch.int8),
    ):
        with pytest.raises(UnsupportedEngine, match="unknown KV cache"):
            Layout.of(cache)
