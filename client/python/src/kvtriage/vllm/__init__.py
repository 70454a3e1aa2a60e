"""kvtriage for vLLM: kvtriaged compacts the KV cache of live requests, in the engine's own memory.

    vllm serve MODEL --no-enable-prefix-caching --kv-transfer-config '{"kv_connector": "KVTriageConnector",
        "kv_connector_module_path": "kvtriage.vllm", "kv_role": "kv_both",
        "kv_connector_extra_config": {"keep": 0.2}}'

client/python/vllm.md has the settings, and what is refused and why. vLLM imports this module in each of its
processes; it needs vLLM and torch.
"""

from kvtriage.vllm.versions import check_version

check_version()  # before anything that touches vLLM's insides is imported

from kvtriage.vllm import request_check
from kvtriage.vllm.connector import KVTriageConnector

request_check.install()

__all__ = ["KVTriageConnector"]
