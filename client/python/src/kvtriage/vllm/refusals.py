"""Configurations of vLLM that cannot be served: refused at start, by name, with what to change."""

from __future__ import annotations

from typing import Any

from kvtriage.vllm.settings import Settings
from kvtriage.vllm.versions import UnsupportedEngine


def refuse_config(config: Any, settings: Settings) -> None:
    """`config`: vLLM's VllmConfig. Raises UnsupportedEngine for the first thing in the way."""
    parallel, cache, model = config.parallel_config, config.cache_config, config.model_config
    _need(
        parallel.tensor_parallel_size == 1,
        "tensor_parallel_size",
        "several ranks were not tested; run with --tensor-parallel-size 1",
    )
    _need(
        parallel.pipeline_parallel_size == 1,
        "pipeline_parallel_size",
        "a request's layers must be in one process; run with --pipeline-parallel-size 1",
    )
    _need(
        getattr(parallel, "data_parallel_size", 1) == 1,
        "data_parallel_size",
        "several engines were not tested; run one engine per service",
    )
    _need(
        getattr(parallel, "decode_context_parallel_size", 1) == 1
        and getattr(parallel, "prefill_context_parallel_size", 1) == 1,
        "context parallelism",
        "rows of a request must be in one process",
    )
    _need(
        not config.use_v2_model_runner,
        "VLLM_USE_V2_MODEL_RUNNER",
        "the plugin replaces a method of the V1 model runner; set VLLM_USE_V2_MODEL_RUNNER=0",
    )
    _need(
        cache.cache_dtype == "auto",
        "kv_cache_dtype",
        f"{cache.cache_dtype!r} was not tested; leave --kv-cache-dtype at auto",
    )
    _need(not model.uses_mrope, "M-RoPE", "models with several positions per token were not tested")
    _need(config.lora_config is None, "enable_lora", "LoRA was not tested; run without --enable-lora")
    if settings.observes:
        return
    _need(
        not cache.enable_prefix_caching,
        "enable_prefix_caching",
        "shared blocks must not be overwritten; run with --no-enable-prefix-caching, or mode=observe",
    )
    _need(
        not config.scheduler_config.async_scheduling,
        "async_scheduling",
        "the next step would be scheduled with the old lengths; run with --no-async-scheduling",
    )
    _need(
        config.speculative_config is None,
        "speculative_config",
        "rows of drafts may be taken back; run without speculative decoding",
    )


def refuse_layers(attentions: dict[str, Any]) -> None:
    """`attentions`: vLLM's Attention layers by name. Their masks must not come from the place of a row."""
    for name, layer in attentions.items():
        impl = layer.impl
        backend = type(impl).__name__
        _need(
            backend == "CPUAttentionBackendImpl",
            f"{name}: attention backend {backend}",
            "only the CPU backend (CPU_ATTN) is supported; memory of GPUs is not lent yet",
        )
        _need(
            layer.isa in ("vec", "vec16"),
            f"{name}: key layout {layer.isa!r}",
            "only plain and transposed rows are supported; run with --dtype float32, which does not pack them",
        )
        _need(
            impl.sliding_window in (-1, None),
            f"{name}: sliding_window={impl.sliding_window}",
            "rows of sliding layers cannot be moved",
        )
        _need(impl.alibi_slopes is None, f"{name}: ALiBi", "its bias comes from the place of a row")
        _need(impl.sinks is None, f"{name}: attention sinks", "learned sinks were not tested")
        _need(
            impl.kv_sharing_target_layer_name is None,
            f"{name}: shared with {impl.kv_sharing_target_layer_name}",
            "layers that use another layer's rows were not tested",
        )
        _need(
            impl.attn_type == "decoder", f"{name}: attention of type {impl.attn_type}", "decoders only"
        )


def _need(holds: bool, what: str, why: str) -> None:
    if not holds:
        raise UnsupportedEngine(f"kvtriage cannot serve this engine: {what}: {why}")
