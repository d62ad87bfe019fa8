"""The document of `vramtui ps --json` and, with the predictions spelt out, of a snapshot's JSON file."""

from typing import Any

import msgspec

from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.readings import SCHEMA, Gpu, Host, Process, ProcessKey, process_key
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.sanitize import clean

Document = dict[str, Any]


def ps_document(snapshot: Snapshot) -> Document:
    """Everything seen at one moment, for JSON: bytes are integers, times seconds since the epoch, unknown is None.

    Where a value of a GPU or process is None, the owner's `absent` says why under the field's name. `peak_memory` is
    the most the process was seen to hold since the program began to look, `peak_how` how that was learned, and
    `peak_interval` how many seconds lay between the looks (None for what the driver itself recorded);
    `predicted_memory` is set where a preset matches.
    """
    return _document(snapshot, detailed=False)


def snapshot_document(snapshot: Snapshot) -> Document:
    """The document of `ps_document`, with `comparison` and `estimate` beside every process that has a preset."""
    return _document(snapshot, detailed=True)


def _document(snapshot: Snapshot, *, detailed: bool) -> Document:
    sample = snapshot.sample
    holdings = {holding.key: holding for holding in snapshot.holdings}
    document: Document = clean(
        {
            "schema": SCHEMA,
            "host": sample.host.name,
            "taken_at": sample.taken_at,
            "source": sample.source,
            **_host(sample.host),
            "gpus": [_gpu(sample.host.name, gpu, holdings, detailed=detailed) for gpu in sample.gpus],
            "problems": msgspec.to_builtins(sample.problems),
            "versions": snapshot.versions,
        }
    )
    return document


def _host(host: Host) -> Document:
    return {
        "driver_version": host.driver_version,
        "cuda_version": host.cuda_version,
        "cpu_percent": host.cpu_percent,
        "host_memory": {"total": host.memory_total, "available": host.memory_available},
    }


def _gpu(host: str, gpu: Gpu, holdings: dict[ProcessKey, Holding], *, detailed: bool) -> Document:
    document: Document = msgspec.to_builtins(msgspec.structs.replace(gpu, processes=()))
    document["memory"] = {
        "total": gpu.memory.total,
        "used": gpu.memory.used,
        "reserved": gpu.memory.reserved,
        "free": gpu.memory.free,
        "unattributed": gpu.unattributed,
        "unified": gpu.memory.unified,
    }
    document["processes"] = [
        _process(process, holdings.get(process_key(host, gpu, process)), detailed=detailed) for process in gpu.processes
    ]
    return document


def _process(process: Process, holding: Holding | None, *, detailed: bool) -> Document:
    peak = holding.peak if holding else None
    estimate = holding.estimate if holding else None
    comparison = holding.comparison if holding else None
    document: Document = {
        "pid": process.pid,
        "type": process.type,
        "user": process.user,
        "name": process.name,
        "command": process.command,
        "used_memory": process.used_memory,
        "peak_memory": peak.bytes if peak else None,
        "peak_at": peak.at if peak else None,
        "peak_how": peak.how if peak else None,
        "peak_interval": peak.interval if peak else None,
        "started_at": process.started_at,
        "state": process.state,
        "cpu_percent": process.cpu_percent,
        "host_memory": process.host_memory,
        "sm_percent": process.sm_percent,
        "container": process.container,
        "rank": None if process.rank is None else msgspec.to_builtins(process.rank),
        "ancestors": None if process.ancestors is None else msgspec.to_builtins(process.ancestors),
        "module_loading": process.module_loading,
        "torch": process.torch,
        "alloc_conf": process.alloc_conf,
        "preset": holding.preset if holding else None,
        "predicted_memory": estimate.process if estimate else None,
        "verdict": comparison.verdict if comparison else None,
        "absent": msgspec.to_builtins(process.absent),
    }
    if detailed:
        document["comparison"] = msgspec.to_builtins(comparison) if comparison else None
        document["estimate"] = _estimate(estimate) if estimate else None
    return document


def _estimate(estimate: Estimate) -> Document:
    return {
        **msgspec.to_builtins(estimate),
        "allocated": estimate.allocated,
        "reserved": estimate.reserved,
        "process": estimate.process,
    }
