import csv
import io
import json
from pathlib import Path

import msgspec
import pytest

from tests.commands import invoke
from tests.examples import Never
from tests.tables import rows
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Absence, Gpu, Host, Memory, PcieTraffic, Process, Sample


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_the_document_keeps_its_contract() -> None:
    result = invoke("ps", "--demo", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    assert {"host", "taken_at", "source", "gpus", "problems"} <= set(document)
    for gpu in document["gpus"]:
        assert {"index", "uuid", "name", "state", "utilization", "power_watts", "temperature_celsius"} <= set(gpu)
        memory = gpu["memory"]
        held = sum(process["used_memory"] for process in gpu["processes"])
        assert held + memory["unattributed"] + memory["reserved"] + memory["free"] == memory["total"]
        assert all(isinstance(memory[key], int) for key in ("total", "used", "reserved", "free", "unattributed"))
    process = document["gpus"][0]["processes"][0]
    assert process["preset"] == "llama-3.1-8b-lora"
    assert isinstance(process["predicted_memory"], int)
    assert {"pid", "type", "user", "command", "used_memory", "peak_memory", "started_at", "state"} <= set(process)


def test_the_table_shows_who_holds_what_of_the_gpus_and_user_that_are_chosen() -> None:
    result = invoke("ps", "--demo")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    training = next(line for line in lines if "train.py" in line)
    assert "anna" in training
    assert "meta-llama/Llama-3.1-8B --lora --batch 4" in training
    foot = "all processes 140.4 GiB · driver 2.4 GiB · unattributed 9.1 GiB: GPU 3 9.1 (driver, exited pids)"
    assert [line for line in lines if "unattributed" in line] == [foot]
    assert "free: GPU 0 64.2, GPU 1 118.9, GPU 2 118.6, GPU 3 108.0 of 140.4 GiB NVIDIA H200" in result.stdout
    result = invoke("ps", "--demo", "--gpu", "0,2", "--csv", "--user", "carla")
    assert [row["pid"] for row in csv.DictReader(io.StringIO(result.stdout))] == ["6001"]
    document = json.loads(invoke("ps", "--demo", "--gpu", "3", "--json").stdout)
    assert [gpu["index"] for gpu in document["gpus"]] == [3]
    once = invoke("--demo", "--once", "--only", "1")
    assert (once.exit_code, "5120" in once.stdout, "4213" in once.stdout) == (0, True, False)
    lines = printed("--sort", "now", "--top", "2")
    assert lines[0].split()[:2] == ["GPU", "PID"]
    assert printed("-n", "2") == printed("--top", "2") == lines, "the largest without --sort as well"
    assert printed("-u", "carla") == printed("--user", "carla")
    held = [float(line.split()[4]) for line in lines[1:]]
    assert len(held) == 2
    assert held == sorted(held, reverse=True)
    lines = printed("--filter", "user:anna gpu:0")
    assert len(lines) > 1
    assert all("anna" in line and line.split()[0] == "0" for line in lines[1:])
    found = list(csv.DictReader(io.StringIO("\n".join(printed("--csv", "--sort", "now")))))
    assert int(found[0]["used_bytes"]) > 1 << 30
    assert {"gpu", "pid", "user", "peak_bytes", "predicted_bytes", "command"} <= set(found[0])


def test_a_gpu_or_a_driver_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke("ps", "--demo", "--gpu", "9")
    assert (result.exit_code, "there is no GPU 9 here. There are 0, 1, 2, 3." in result.stderr) == (3, True)
    result = invoke("ps", "--demo", "--gpu", "one")
    assert (result.exit_code, "'one' is not a GPU" in result.stderr) == (2, True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    document = json.loads(invoke("ps", "--demo", "--gpu", "visible", "--json").stdout)
    assert [gpu["index"] for gpu in document["gpus"]] == [2]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "CUDA_VISIBLE_DEVICES is not set" in invoke("ps", "--demo", "--gpu", "visible").stderr

    def no_driver() -> None:
        raise SourceFailed("NVML cannot be loaded: libnvidia-ml.so.1 was not found.", "Install the driver.")

    monkeypatch.setattr("vramtui.sources.pick.pick_source", no_driver)
    result = invoke("ps")
    assert result.exit_code == 3
    assert "libnvidia-ml.so.1 was not found. Install the driver." in result.stderr
    assert "Traceback" not in result.output


def test_a_recording_of_a_demo_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = invoke("ps", "--demo", "--replay", str(tmp_path / "x.jsonl"))
    assert result.exit_code == 2
    assert "give one of them" in result.stderr
    result = invoke("ps", "--replay", str(tmp_path / "none.jsonl"))
    assert result.exit_code == 2
    assert "none.jsonl" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def printed(*options: str) -> list[str]:
    result = invoke("ps", "--demo", *options)
    assert result.exit_code == 0, result.output
    below = ("─", "shown", "all processes", "free:", "NOW", "~")
    return [line for line in result.stdout.splitlines() if line.startswith(" NOW") or not line.startswith(below)]


@pytest.mark.parametrize(("options", "begins"), rows(__file__, "one_line_below_says_what_belongs_to_no_process"))
def test_one_line_below_says_what_belongs_to_no_process(options: list[str], begins: str) -> None:
    lines = invoke("ps", "--demo", *options).stdout.splitlines()
    foot = [line for line in lines if "all processes" in line]
    assert [line.startswith(begins) for line in foot] == [True], lines
    assert ("unattributed 9.1 GiB: GPU 3 9.1 (driver, exited pids)" in foot[0]) == ("--gpu" not in options)
    # What is free is said where nothing is left out.
    assert any(line.startswith("free: ") for line in lines) == (not foot[0].startswith("shown"))


class Cut(Never):
    def __init__(self, command: str = "python train.py") -> None:
        self.command = command

    def read(self) -> Sample:
        gib = 1 << 30
        memory = Memory(total=80 * gib, used=6 * gib, free=74 * gib)
        card = Gpu(index=0, uuid="GPU-0", name="H100", memory=memory, mig_used=6 * gib)
        half = Memory(total=40 * gib, used=6 * gib, free=34 * gib)
        process = Process(pid=77, type="C", used_memory=6 * gib, command=self.command, container="docker trainer")
        name, profile = "H100 MIG 3g.40gb", "3g.40gb"
        first = Gpu(index=0, uuid="MIG-1", name=name, memory=half, mig_parent="GPU-0", mig_profile=profile)
        first = msgspec.structs.replace(first, processes=(process,))
        empty = Memory(total=40 * gib, used=0, free=40 * gib)
        second = Gpu(index=0, uuid="MIG-2", name=name, memory=empty, mig_parent="GPU-0", mig_profile=profile)
        whole = Gpu(index=1, uuid="GPU-1", name="H100", memory=Memory(total=80 * gib, used=0, free=80 * gib))
        return Sample(taken_at=1.0, source="test", host=Host(name="h"), gpus=(card, first, second, whole))


def test_a_card_that_is_cut_into_instances_is_not_free_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.sources.pick.pick_source", Cut)
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    told = invoke("ps").stdout
    assert "free: GPU 0:0 34.0, GPU 0:1 40.0 of 40.0 GiB H100 MIG 3g.40gb; GPU 1 80.0 of 80.0 GiB H100" in told
    rows = list(csv.DictReader(io.StringIO(invoke("ps", "--csv").stdout)))
    assert [(row["gpu"], row["uuid"], row["job"]) for row in rows] == [("0", "MIG-1", "docker trainer")]
    assert invoke("pick").stdout == "1\n"
    # An instance has no index of its own, and a job of several GPUs can use none.
    assert invoke("pick", "--gpus", "2").exit_code == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2")
    assert invoke("pick").stdout == "MIG-2\n"


class Measuring(Cut):
    def measure_traffic(self, gpu_uuid: str) -> PcieTraffic | Absence:
        return Absence.NOT_SUPPORTED if gpu_uuid.startswith("MIG") else PcieTraffic(sent=3 << 20, received=5 << 20)


def test_more_stands_beside_a_process_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.sources.pick.pick_source", Measuring)
    assert "PCIe" not in invoke("ps").stdout
    told = invoke("ps", "--traffic").stdout
    assert "over PCIe, sent and received: GPU 0 3.0 MiB/s and 5.0 MiB/s, GPU 0:0 not supported, GPU 0:1" in told
    gpus = json.loads(invoke("ps", "--traffic", "--json").stdout)["gpus"]
    assert [gpu["pcie_received"] for gpu in gpus] == [5 << 20, None, None, 5 << 20]
    assert [gpu["absent"].get("pcie_sent") for gpu in gpus] == [None, "not_supported", "not_supported", None]
    assert invoke("ps", "--traffic", "--csv").exit_code == 2
    monkeypatch.setattr("vramtui.sources.pick.pick_source", Cut)
    heading, _, row, *_ = invoke("ps").stdout.splitlines()
    assert row[heading.index("JOB") :].startswith("docker trainer   python train.py")
    command = "vllm serve " + " ".join(f"--setting-{number}=value" for number in range(200))
    monkeypatch.setattr("vramtui.sources.pick.pick_source", lambda: Cut(command))
    told = invoke("ps").stdout
    assert command in told
    assert "\x1b" not in told
    assert (
        max(len(line) for line in told.splitlines() if command not in line) < 450
    )  # no rule as long as it, no filling


@pytest.mark.parametrize("by", ["user", "job"])
def test_what_users_and_jobs_hold_is_added_up(by: str) -> None:
    lines = [line.split() for line in printed("--sort", "now")[1:]]
    groups = [line.split() for line in printed("--by", by)[1:]]
    assert sum(int(group[2]) for group in groups) == len(lines)
    assert sum(float(group[0]) for group in groups) == pytest.approx(sum(float(row[4]) for row in lines), abs=0.5)
    held = [float(group[0]) for group in groups]
    assert held == sorted(held, reverse=True)
    if by == "user":
        assert len({group[4] for group in groups}) == len(groups) < len(lines)
    every = list(csv.DictReader(io.StringIO("\n".join(printed("--csv")))))
    sums = list(csv.DictReader(io.StringIO("\n".join(printed("--csv", "--by", by)))))
    assert sum(int(one["processes"]) for one in sums) == len(every)
    assert sum(int(one["used_bytes"]) for one in sums) == pytest.approx(
        sum(int(one["used_bytes"]) for one in every), rel=0.1
    )
    assert [one["user"] for one in sums] == [line.split()[4] for line in printed("--by", by)[1:]]


@pytest.mark.parametrize(("options", "words"), [
    (["--sort", "memroy"], "there is no column 'memroy'"),
    (["--filter", "pid:abc"], "a pid is a number"),
    (["--json", "--top", "1"], "--json has every process"),
])  # fmt: skip
def test_what_cannot_be_picked_is_said_in_a_sentence(options: list[str], words: str) -> None:
    result = invoke("ps", "--demo", *options)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output
