"""Answers about the service and about what is lent."""

from __future__ import annotations

from kvtriage._link.memory_ids import MemoryIds
from kvtriage._messages.policy import policy_of
from kvtriage.cache_description import Access
from kvtriage.lent_memory import CacheStatus, MemoryList, RegionStatus
from kvtriage.server_info import ServerDevice, ServerInfo, ServerLimits
from kvtriage.v1 import memory_pb2, session_pb2

_KINDS = {session_pb2.Device.KIND_CPU: "cpu", session_pb2.Device.KIND_CUDA: "cuda"}


def limits_of(message: session_pb2.Limits) -> ServerLimits:
    return ServerLimits(**{name: getattr(message, name) for name in ServerLimits.__dataclass_fields__})


def _device_of(message: session_pb2.Device) -> ServerDevice:
    return ServerDevice(
        kind=_KINDS.get(message.kind, "unknown"),
        name=message.name,
        memory_bytes=message.memory_bytes,
        healthy=message.health == session_pb2.Device.HEALTH_OK,
        uuid=message.uuid,
    )


def server_info_of(message: session_pb2.GetServerInfoResponse) -> ServerInfo:
    return ServerInfo(
        epoch=message.server_epoch,
        version=message.server_version,
        min_api_revision=message.min_api_revision,
        max_api_revision=message.max_api_revision,
        draining=message.draining,
        groups=session_pb2.FEATURE_GROUPS in message.features,
        devices=tuple(_device_of(device) for device in message.devices),
        limits=limits_of(message.limits),
        policies=tuple(policy_of(policy) for policy in message.policies),
        default_policy=message.default_policy,
    )


def memory_list_of(message: memory_pb2.ListRegionsResponse, ids: MemoryIds) -> MemoryList:
    regions = tuple(
        RegionStatus(
            region=ids.region_of(region.region_id),
            tag=region.tag,
            size=region.size,
            access=Access(region.access),
            pins=region.pins,
            retiring=region.retiring,
        )
        for region in message.regions
    )
    caches = tuple(
        CacheStatus(
            cache=ids.cache_of(cache.cache_id),
            layers=cache.layers,
            regions=tuple(ids.region_of(region) for region in cache.region_ids),
        )
        for cache in message.caches
    )
    return MemoryList(regions, caches)
