import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stub.nvidia_smi import card
from tests.tables import rows
from vramtui.agent.counters import METRICS as COUNTED
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB
from vramtui.core.observation.readings import Absence, Host, Memory, decode_sample, encode_sample
from vramtui.sources import nvidia_smi

Say = Callable[[dict[str, Any]], None]
ME = os.getpid()


def uuid(index: int) -> str:
    return card(index)["uuid"]


def test_reads_cards_and_processes_with_memory_rounded_or_not_supported(smi: Say) -> None:
    smi({"gpus": [card(0), card(1)], "apps": [f"{ME}, {uuid(1)}, 900, /usr/bin/python3"]})
    sample = nvidia_smi.NvidiaSmiSource().read()
    first, second = sample.gpus
    assert (sample.source, sample.problems) == ("nvidia-smi", ())
    assert (sample.host.driver_version, sample.host.cuda_version) == ("550.54.15", "12.4")
    assert (first.name, first.uuid, first.pci_bus_id) == ("NVIDIA H100 80GB HBM3", uuid(0), "00000000:10:00.0")
    assert first.memory == Memory(total=81559 * MIB, used=1024 * MIB, reserved=635 * MIB, free=79900 * MIB)
    assert (first.utilization, first.memory_utilization, first.temperature_celsius) == (37, 12, 41)
    assert (first.power_watts, first.power_limit_watts, first.compute_capability) == (123.45, 700.0, (9, 0))
    assert (first.sm_clock_mhz, first.memory_clock_mhz) == (1980, 2619)
    assert (first.pcie_generation, first.pcie_width, first.ecc_errors) == (5, 16, 0)
    assert first.throttle_reasons == ("power cap",)
    assert first.absent == {"fan_percent": Absence.NOT_SUPPORTED, **dict.fromkeys(COUNTED, Absence.NOT_ASKED)}
    assert first.processes == ()
    (process,) = second.processes
    assert (process.pid, process.type, process.used_memory, process.state) == (ME, "C", 900 * MIB, "running")
    assert process.command
    assert "pytest" in process.command or "python" in process.command
    assert (second.unattributed, decode_sample(encode_sample(sample))) == (124 * MIB, sample)
    smi({"gpus": [card(0, memory__free="79899"), card(1, memory__free="70000")]})
    near, far = (gpu.memory for gpu in nvidia_smi.NvidiaSmiSource().read().gpus)
    assert (near.total, near.free) == (81559 * MIB, 79900 * MIB)
    assert far.free == 70000 * MIB  # that is no rounding, so it is shown as it is
    none = dict.fromkeys(("memory__total", "memory__used", "memory__free", "memory__reserved"), "[N/A]")
    smi({"gpus": [card(0, **none), card(1)], "apps": [f"{ME}, {uuid(0)}, 900, python"]})
    sample = nvidia_smi.NvidiaSmiSource().read()
    first, second = sample.gpus
    assert sample.host.memory_available
    assert first.memory == Memory(unified=True, used=900 * MIB, free=sample.host.memory_available)
    assert first.absent.get("memory.free") is None
    assert first.absent["memory.total"] is Absence.NOT_SUPPORTED
    assert not second.memory.unified


@pytest.mark.parametrize(("text", "absence"), rows(__file__, "missing"))
def test_one_value_that_is_missing(smi: Say, text: str, absence: str) -> None:
    smi({"gpus": [card(0, utilization__gpu=text, power__draw=text), card(1)]})
    first, second = nvidia_smi.NvidiaSmiSource().read().gpus
    assert (first.utilization, first.power_watts) == (None, None)
    assert first.absent["utilization"] is first.absent["power_watts"] is Absence[absence]
    assert (first.memory_utilization, first.state, second.utilization) == (12, "ok", 37)


def test_fields_that_an_old_driver_rejects_are_done_without_or_named_as_then(smi: Say) -> None:
    old = card(0, clocks_throttle_reasons__active="0x0000000000000040")
    rejected = ["clocks_event_reasons.active", "memory.reserved", "compute_cap"]
    smi({"gpus": [old], "rejected": rejected})
    questions: list[str] = []
    local = nvidia_smi.LocalRunner()

    def runner(command: Sequence[str], limit: float) -> nvidia_smi.Output:
        questions.append(command[1])
        return local(command, limit)

    source = nvidia_smi.NvidiaSmiSource(runner)
    (gpu,) = source.read().gpus
    assert gpu.throttle_reasons == ("hardware thermal slowdown",)
    assert (gpu.memory.reserved, gpu.compute_capability) == (None, None)
    assert gpu.absent["memory.reserved"] is gpu.absent["compute_capability"] is Absence.DRIVER_TOO_OLD
    assert gpu.utilization == 37
    questions.clear()
    source.read()
    assert len(questions) == 2  # it is remembered: one question for the cards, one for the processes


def test_lost_from_the_start_and_while_running(smi: Say) -> None:
    gone = (
        "Unable to determine the device handle for GPU0000:11:00.0: GPU is lost.  Reboot the system to recover this GPU"
    )
    smi({"gpus": [card(0), card(1), card(2)]})
    source = nvidia_smi.NvidiaSmiSource()
    source.read()
    smi({"gpus": [card(0), card(2)], "before": gone})
    first, second, third = source.read().gpus
    assert (first.state, third.state) == ("ok", "ok")
    assert (second.index, second.uuid, second.name) == (1, uuid(1), "NVIDIA H100 80GB HBM3")
    assert (second.state, second.memory) == ("lost", Memory())
    assert "GPU is lost" in second.reason
    assert second.absent["utilization"] is Absence.LOST
    smi({"gpus": [card(0), card(2)]})
    assert [gpu.state for gpu in source.read().gpus] == ["ok", "failed", "ok"]
    smi({"gpus": [card(0), card(1), card(2)]})
    assert [gpu.state for gpu in source.read().gpus] == ["ok"] * 3
    smi({"gpus": [card(0), card(2)], "before": gone})
    states = {gpu.index: (gpu.state, gpu.name) for gpu in nvidia_smi.NvidiaSmiSource().read().gpus}
    assert states[1] == ("lost", "GPU 1")
    row = {key.replace(".", "__"): "[GPU is lost]" for key in card(1) if key not in ("index", "uuid")}
    smi({"gpus": [card(0), card(1, **row)]})
    first, second = nvidia_smi.NvidiaSmiSource().read().gpus
    assert (first.state, second.state, second.uuid) == ("ok", "lost", uuid(1))


@pytest.mark.parametrize(("line", "name", "used"), rows(__file__, "process_lines"))
def test_process_lines(smi: Say, line: str, name: str, used: int | str) -> None:
    pid = (1 << 22) - 1  # nobody's
    smi({"gpus": [card(0)], "apps": [line.format(pid=pid, uuid=uuid(0))]})
    (process,) = nvidia_smi.NvidiaSmiSource().read().gpus[0].processes
    assert (process.pid, process.name or "none", process.state) == (pid, name, "exited")
    assert process.used_memory == (used * MIB if isinstance(used, int) else None)
    assert ("used_memory" in process.absent) == (used == "none")


def test_no_processes_no_list_and_instances(smi: Say) -> None:
    smi({"gpus": [card(0)], "apps": ["No running processes found"]})
    sample = nvidia_smi.NvidiaSmiSource().read()
    assert (sample.gpus[0].processes, sample.problems) == ((), ())
    assert "processes" not in sample.gpus[0].absent
    smi({"gpus": [card(0, mig__mode__current="Enabled")], "apps": ["Insufficient permissions"], "apps_code": 4})
    sample = nvidia_smi.NvidiaSmiSource().read()
    assert sample.gpus[0].absent["processes"] is Absence.FAILED
    said = " ".join(problem.message for problem in sample.problems)
    assert "Insufficient permissions" in said
    assert "MIG" in said
    smi({"text": "No devices were found", "code": 6})
    sample = nvidia_smi.NvidiaSmiSource().read()
    assert sample.gpus == ()
    assert any("No devices" in problem.message for problem in sample.problems)


@pytest.mark.parametrize(("text", "code", "message"), rows(__file__, "the_program_fails"))
def test_the_program_fails(
    smi: Say, text: str, code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi({"text": text, "code": code})
    if code == -1:
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceFailed) as caught:
        nvidia_smi.NvidiaSmiSource().read()
    assert message in caught.value.message


def test_a_program_that_hangs_is_killed(smi: Say) -> None:
    smi({"gpus": [card(0)], "sleep": 600})
    source = nvidia_smi.NvidiaSmiSource(limit=0.3)
    with pytest.raises(SourceFailed, match=r"gave no answer within 0\.3 s"):
        source.read()
    smi({"gpus": [card(0)]})
    assert len(nvidia_smi.NvidiaSmiSource(limit=60.0).read().gpus) == 1


@pytest.mark.parametrize("command", [("yes", "0, NVIDIA H100"), ("sh", "-c", "exec cat /dev/zero >&2")])
def test_a_program_that_prints_without_an_end_is_killed_long_before_its_time(command: Sequence[str]) -> None:
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(SourceFailed, match="prints without an end"):
        nvidia_smi.LocalRunner()(command, 600.0)
    assert time.monotonic() - begun < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB: what it printed is not kept


def test_what_prints_little_or_in_any_pieces_is_taken_whole() -> None:
    with pytest.raises(SourceFailed, match=r"still prints after 0\.5 s"):
        nvidia_smi.LocalRunner()(("sh", "-c", "while echo 0; do sleep 0.05; done"), 0.5)
    said = nvidia_smi.LocalRunner()(("sh", "-c", "echo one; sleep 0.1; echo three >&2; printf two; exit 3"), 60.0)
    assert said == nvidia_smi.Output("one\ntwothree\n", 3)


def test_one_that_cannot_be_killed_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kills: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: kills.append(pid))  # as one that waits in the driver
    runner = nvidia_smi.LocalRunner()
    for words in ("gave no answer", "still hangs"):
        with pytest.raises(SourceFailed, match=words):
            runner(("sleep", "600"), 0.05)
    monkeypatch.undo()
    (pid,) = kills
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert runner(("echo", "back"), 60.0).text == "back\n"


def test_over_another_runner_nothing_is_asked_of_this_machine() -> None:
    answers = {
        "--query-gpu": ", ".join(card(0)[column.queries[0]] for column in nvidia_smi.COLUMNS),
        "--query-compute-apps": f"{ME}, {uuid(0)}, 900, /usr/bin/python3",
    }

    def runner(command: Sequence[str], _: float) -> nvidia_smi.Output:
        return nvidia_smi.Output(answers.get(command[1].partition("=")[0], ""), 0)

    source = nvidia_smi.NvidiaSmiSource(
        runner, host=lambda driver, cuda: Host(name="far", driver_version=driver, cuda_version=cuda)
    )
    sample = source.read()
    (process,) = sample.gpus[0].processes
    assert (sample.host.name, sample.host.cuda_version) == ("far", None)
    assert (process.name, process.command, process.state) == ("/usr/bin/python3", None, "unknown")


def test_picked_where_nvml_cannot_be_loaded(smi: Say, tmp_path: Path) -> None:
    smi({"gpus": [card(0)]})
    (tmp_path / "libnvidia-ml.so.1").write_text("no library\n")
    code = """
from vramtui.sources.pick import pick_source
source = pick_source()
sample = source.read()
print(source.name, len(sample.gpus), sample.problems[0].message)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("nvidia-smi 1 nvmlInit: NVIDIA's library libnvidia-ml.so.1 was not found.")


# Whatever a program prints, the parsers give values or reasons, and never raise.
KINDS = sorted({column.kind for column in nvidia_smi.COLUMNS})


@given(st.text(), st.sampled_from(KINDS))
def test_a_cell_is_a_value_or_a_reason(text: str, kind: str) -> None:
    value, absence = nvidia_smi.parse_value(text, kind)
    assert (value is None) == (absence is not None)
    if isinstance(value, str):
        assert printable(value) == value


@given(st.integers(0, 200_000), st.integers(0, 200_000), st.integers(0, 2000), st.integers(-2, 2))
def test_rounded_parts_add_up_to_the_whole(used: int, free: int, reserved: int, error: int) -> None:
    total = used + free + reserved
    rest = nvidia_smi.balanced(total * MIB, used * MIB, reserved * MIB, (free + error) * MIB)
    assert rest == free * MIB
