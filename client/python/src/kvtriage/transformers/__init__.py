"""transformers on a KV cache that kvtriaged compacts.

    session = kvtriage.connect()
    cache = SidecarCache(model, session, capacity=8192, policy="snapkv", kept_ratio=0.25)
    with cache.attach(model):
        model.generate(**inputs, past_key_values=cache)

Works with transformers 5: its tests pass with 5.0, 5.2 and 5.24. Models must have full attention in all
layers (UnsupportedModel names what stands in the way).
"""

from kvtriage.transformers.blend import Blended, Blender
from kvtriage.transformers.chunk import Chunk, glue, prefill_chunk
from kvtriage.transformers.errors import KvDamaged, UnsupportedModel
from kvtriage.transformers.generation import generate
from kvtriage.transformers.sidecar_cache import SidecarCache
from kvtriage.transformers.snapshot import Snapshot

__all__ = [
    "Blended",
    "Blender",
    "Chunk",
    "KvDamaged",
    "SidecarCache",
    "Snapshot",
    "UnsupportedModel",
    "generate",
    "glue",
    "prefill_chunk",
]
