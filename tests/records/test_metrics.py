import json
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from tests.records.moments import moment
from vramtui import __version__
from vramtui.core.base.units import GIB, MIB
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, ProcessKey, Sample
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.metrics import MOST_GROUPS, NAMES, MetricFamily, metrics_of, up_metric

PACKAGING = Path(__file__).parents[2] / "packaging" / "prometheus"


def by_name(families: tuple[MetricFamily, ...]) -> dict[str, MetricFamily]:
    return {family.name: family for family in families}


def value(family: MetricFamily, **labels: str) -> float:
    (found,) = (
        number
        for values, number in family.samples
        if labels.items() <= dict(zip(family.labels, values, strict=True)).items()
    )
    return found


def crowd(count: int) -> Snapshot:
    """So many processes on one card, each of a user of its own; the first of 1 MiB, the next of 2."""
    processes = tuple(Process(pid=pid, type="C", used_memory=pid * MIB, user=f"u{pid}") for pid in range(1, count + 1))
    memory = Memory(total=80 * GIB, used=3 * GIB + 5, reserved=600 * MIB, free=77 * GIB - 600 * MIB - 5)
    gpu = Gpu(index=0, uuid="GPU-0", name="H100", memory=memory, processes=processes, utilization=7)
    holdings = tuple(
        Holding(key=ProcessKey("h", "GPU-0", row.pid, None), gpu_index=0, process=row) for row in processes
    )
    sample = Sample(taken_at=1.0, source="nvml", host=Host(name="h"), gpus=(gpu,))
    return Snapshot(sample=sample, holdings=holdings, versions={})


def test_every_name_is_told_and_a_prediction_beside_what_is_observed() -> None:
    assert tuple(by_name(metrics_of(moment(), {}))) == (*(name for name in NAMES if name != "vramtui_up"), "vramtui_up")
    found = by_name(metrics_of(crowd(1), {}))
    assert value(found["DCGM_FI_DEV_FB_USED"], gpu="0", UUID="GPU-0", Hostname="h", modelName="H100") == 3 * 1024
    parts = found["vramtui_gpu_memory_bytes"]
    whole = sum(number for _, number in parts.samples)
    assert whole == value(found["vramtui_gpu_memory_total_bytes"]) == 80 * GIB
    assert value(parts, part="processes") == MIB
    assert value(found["vramtui_gpu_memory_bytes"], part="unattributed") == 3 * GIB + 5 - MIB
    assert value(found["DCGM_FI_DEV_GPU_UTIL"]) == 7
    assert found["DCGM_FI_DEV_POWER_USAGE"].samples == ()  # not known is not 0
    found = by_name(metrics_of(crowd(1), {}, with_dcgm=False))
    assert not any(name.startswith("DCGM") for name in found)
    assert value(found["vramtui_sample_timestamp_seconds"]) == 1.0
    assert value(found["vramtui_build_info"], version=__version__) == 1.0
    snapshot = moment()
    holding = next(one for one in snapshot.holdings if one.comparison is not None)
    found = by_name(metrics_of(snapshot, {holding.key: "train"}))
    own = {"uuid": holding.key.gpu_uuid, "preset": holding.preset or "", "kind": "train"}
    parts, totals = found["vramtui_predicted_memory_bytes"], found["vramtui_predicted_memory_total_bytes"]
    assert value(totals, **own) == holding.estimate.process
    for labels, total in totals.samples:
        assert sum(number for of_part, number in parts.samples if of_part[: len(labels)] == labels) == total
    expected = holding.peak.bytes / holding.estimate.process - 1
    assert value(found["vramtui_prediction_error_ratio"], **own) == pytest.approx(expected)
    assert value(found["vramtui_process_memory_bytes"], **own) == holding.process.used_memory


def test_a_crowd_is_a_bounded_number_of_series_and_an_instance_is_not_dcgms() -> None:
    snapshot = crowd(500)
    for per_process in (False, True):
        held = by_name(metrics_of(snapshot, {}, per_process=per_process))["vramtui_process_memory_bytes"]
        assert len(held.samples) == MOST_GROUPS
        assert sum(number for _, number in held.samples) == sum(range(1, 501)) * MIB
        assert value(held, user="u500") == 500 * MIB
        assert value(held, user="other") > 0
        assert ("pid" in held.labels) == per_process
    snapshot = crowd(0)
    (gpu,) = snapshot.sample.gpus
    instance = msgspec.structs.replace(gpu, uuid="MIG-1", mig_parent=gpu.uuid)
    sample = msgspec.structs.replace(snapshot.sample, gpus=(gpu, instance))
    found = by_name(metrics_of(msgspec.structs.replace(snapshot, sample=sample), {}))
    assert len(found["DCGM_FI_DEV_FB_USED"].samples) == 1
    assert value(found["vramtui_gpu_memory_total_bytes"], uuid="MIG-1") == 80 * GIB
    # Its card would be there twice.
    assert len(found["vramtui_gpu_memory_total_bytes"].samples) == 1
    assert {labels[1] for labels, _ in found["vramtui_gpu_memory_bytes"].samples} == {"MIG-1"}
    assert len(found["vramtui_gpu_up"].samples) == 2
    assert up_metric(up=False).samples == (((), 0.0),)


@pytest.mark.parametrize(("container", "labels"), [
    ("pod team/train-0", {"namespace": "team", "pod": "train-0", "container": ""}),
    ("pod train-0", {"namespace": "", "pod": "train-0", "container": ""}),
    ("docker trainer", {"namespace": "", "pod": "", "container": "docker trainer"}),
    (None, {"namespace": "", "pod": "", "container": ""}),
])  # fmt: skip
def test_a_pod_has_labels_of_its_own(container: str | None, labels: dict[str, str]) -> None:
    snapshot = crowd(1)
    (holding,) = snapshot.holdings
    process = msgspec.structs.replace(holding.process, container=container)
    snapshot = msgspec.structs.replace(snapshot, holdings=(msgspec.structs.replace(holding, process=process),))
    found = by_name(metrics_of(snapshot, {}, per_process=True))
    assert value(found["vramtui_process_memory_bytes"], pid="1", **labels) == MIB


def _expressions() -> list[str]:
    rules = yaml.safe_load((PACKAGING / "alerts.yml").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    panels = json.loads((PACKAGING / "grafana-dashboard.json").read_text())["panels"]
    return found + [target["expr"] for panel in panels for target in panel["targets"]]


def test_rules_and_dashboard_ask_for_what_there_is() -> None:
    expressions = _expressions()
    assert len(expressions) > 10
    for expression in expressions:
        for name in re.findall(r"\b(?:vramtui|DCGM)_\w+", expression):
            assert name in NAMES


@pytest.mark.skipif(not shutil.which("promtool"), reason="Prometheus' promtool is not installed")
def test_prometheus_takes_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", str(PACKAGING / "alerts.yml")], check=True)
