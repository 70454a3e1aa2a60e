"""Settings of a request that cannot be followed are refused where the request comes in (HTTP 400).

vLLM has no hook for that, so InputProcessor.process_inputs is wrapped, in the process of the API. A request
that gets to the engine by another way is not compacted, and the log says why (request_book.py).
"""

from __future__ import annotations

import functools
from typing import Any

from vllm.v1.engine.input_processor import InputProcessor

from kvtriage.vllm.settings import BadRequest, Settings, plan_of

_MARK = "kvtriage_checks"


def install() -> None:
    """Once per process."""
    inner = InputProcessor.process_inputs
    if hasattr(inner, _MARK):
        return

    @functools.wraps(inner)
    def process_inputs(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = inner(self, *args, **kwargs)
        transfer = self.vllm_config.kv_transfer_config
        ours = transfer is not None and transfer.kv_connector == "KVTriageConnector"
        if ours and request.sampling_params is not None and request.prompt_token_ids is not None:
            settings = Settings.of(transfer.kv_connector_extra_config or {})
            plan = plan_of(settings, request.sampling_params.extra_args, len(request.prompt_token_ids))
            if plan is not None and request.resumable and not settings.observes:
                raise BadRequest("kvtriage: a request whose prompt comes in parts cannot be compacted: set it off")
        return request

    setattr(process_inputs, _MARK, True)
    InputProcessor.process_inputs = process_inputs
