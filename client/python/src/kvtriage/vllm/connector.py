"""The KV connector that vLLM loads: one object in the scheduler's process, one in the worker's."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorRole,
    SupportsHMA,
)

from kvtriage.vllm import runner_patch
from kvtriage.vllm.refusals import refuse_config
from kvtriage.vllm.scheduler_side import SchedulerSide
from kvtriage.vllm.settings import Settings
from kvtriage.vllm.stats import PromMetrics, Stats
from kvtriage.vllm.step_report import StepNews, StepReport
from kvtriage.vllm.worker_side import WorkerSide


class KVTriageConnector(KVConnectorBase_V1, SupportsHMA):
    """Raises UnsupportedEngine at start for what it cannot serve; afterwards never because of kvtriaged."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        settings = Settings.of(vllm_config.kv_transfer_config.kv_connector_extra_config or {})
        refuse_config(vllm_config, settings)
        self._worker: WorkerSide | None = None
        self._scheduler: SchedulerSide | None = None
        self._observes = settings.observes
        if role == KVConnectorRole.WORKER:
            self._worker = WorkerSide(settings, vllm_config.compilation_config.static_forward_context)

    @property
    def worker(self) -> WorkerSide:
        assert self._worker is not None  # vLLM calls each half in its own process
        return self._worker

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # nothing of a request has to reach anybody

    # ---- worker --------------------------------------------------------------------------------------

    def get_mem_pool_context(self) -> Any:
        return self.worker.memory

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self.worker.register(kv_caches)
        runner_patch.install(self.worker)

    def handle_preemptions(self, kv_connector_metadata: StepNews) -> None:
        self.worker.forget(kv_connector_metadata)

    def wait_for_save(self) -> None:
        self.worker.end_forward()

    def build_connector_worker_meta(self) -> StepReport | None:
        return self.worker.take_report()

    def get_kv_connector_stats(self) -> Stats | None:
        return self._worker.stats.take() if self._worker is not None else None

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing is loaded."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing is saved."""

    # ---- scheduler -----------------------------------------------------------------------------------

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        if not self._observes:
            self._scheduler = SchedulerSide(kv_cache_manager)

    def on_new_request(self, request: Any) -> None:
        if self._scheduler is not None:
            self._scheduler.enter(request)

    def update_connector_output(self, connector_output: Any) -> None:
        report = connector_output.kv_connector_worker_meta
        if report is not None and self._scheduler is not None:
            self._scheduler.take(report)

    def build_connector_meta(self, scheduler_output: Any) -> StepNews:
        resumed = scheduler_output.scheduled_cached_reqs.resumed_req_ids
        preempted = scheduler_output.preempted_req_ids or set()
        return StepNews(set(scheduler_output.finished_req_ids), resumed | preempted)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing is loaded."""

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        if self._scheduler is not None:
            self._scheduler.forget(request.request_id)
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return self.request_finished(request, block_ids)

    # ---- metrics -------------------------------------------------------------------------------------

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Stats:
        return Stats(data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> PromMetrics:
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
