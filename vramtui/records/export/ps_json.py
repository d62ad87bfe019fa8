"""The document of `vramtui ps --json` and, with the predictions in detail, of a snapshot's JSON file."""

from typing import Any

import msgspec

from vramtui.core.observation.readings import SCHEMA, process_key
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.sanitize import clean

Document = dict[str, Any]


def ps_document(snapshot: Snapshot, *, detailed: bool = False) -> Document:
    """Everything seen at one moment: bytes are integers, times seconds since the epoch, unknown is None.

    If a value of a GPU or process is None, its `absent` says why. `peak_memory` is the most the process was seen to
    hold since the program began to look, `peak_how` how that was learned, and `peak_interval` the seconds between the
    looks (None if the driver recorded it); `predicted_memory` needs a preset that matches. `detailed` adds
    `comparison` and `estimate` to processes.
    """
    sample = snapshot.sample
    holdings = {holding.key: holding for holding in snapshot.holdings}
    gpus = [
        msgspec.to_builtins(msgspec.structs.replace(gpu, processes=()))
        | {
            "memory": msgspec.to_builtins(gpu.memory) | {"unattributed": gpu.unattributed},
            "processes": [
                _process(
                    msgspec.to_builtins(process),
                    holdings.get(process_key(sample.host.name, gpu, process)),
                    detailed=detailed,
                )
                for process in gpu.processes
            ],
        }
        for gpu in sample.gpus
    ]
    host = sample.host
    document: Document = clean(
        {
            "schema": SCHEMA,
            "host": host.name,
            "taken_at": sample.taken_at,
            "source": sample.source,
            "driver_version": host.driver_version,
            "cuda_version": host.cuda_version,
            "cpu_percent": host.cpu_percent,
            "host_memory": {"total": host.memory_total, "available": host.memory_available},
            "summary": snapshot.sentences,
            "users": [
                {"user": user, "processes": number, "used_memory": used} for user, number, used in snapshot.users
            ],
            "gpus": gpus,
            "problems": msgspec.to_builtins(sample.problems),
            "versions": snapshot.versions,
        }
    )
    return document


def _process(document: Document, holding: Holding | None, *, detailed: bool) -> Document:
    peak, estimate, comparison = (holding.peak, holding.estimate, holding.comparison) if holding else (None, None, None)
    document |= {
        "peak_memory": peak.bytes if peak else None,
        "peak_at": peak.at if peak else None,
        "peak_how": peak.how if peak else None,
        "peak_interval": peak.interval if peak else None,
        "preset": holding.preset if holding else None,
        "predicted_memory": estimate.process if estimate else None,
        "verdict": comparison.verdict if comparison else None,
        "settings": holding.settings or None if holding else None,
        "outlook": holding.outlook if holding else (),
        "absent": document.pop("absent"),
    }
    if detailed:
        totals = {name: getattr(estimate, name, None) for name in ("allocated", "reserved", "process")}
        document["comparison"] = msgspec.to_builtins(comparison)
        document["estimate"] = {**msgspec.to_builtins(estimate), **totals} if estimate else None
    return document
