"""`vramtui doctor` on a host made of stand-ins."""

import json

from tests.installed.conftest import Run
from tests.installed.stand_in import StandIn
from tests.stub.world import NO_PERMISSION


def _checks(text: str) -> dict[str, dict[str, str]]:
    return {check["check"]: check for check in json.loads(text)["checks"]}


def test_a_host_that_is_as_it_should_be(run: Run, stand_in: StandIn) -> None:
    stand_in.busy.accounting = stand_in.other.accounting = 1
    stand_in.show()
    checks = _checks(run("doctor", "--json", code=0).stdout)
    assert checks["nvml"]["verdict"] == "ok"
    assert "2 GPUs (NVIDIA H200 NVL, NVIDIA L40S), driver 580.95.05, CUDA 13.0" in checks["nvml"]["message"]
    assert (checks["gpus"]["verdict"], checks["accounting"]["verdict"]) == ("ok", "ok")
    # There is no nvidia-smi on this PATH and there are no device files behind the stand-in.
    assert checks["nvidia-smi"]["verdict"] == "warning"


def test_what_is_wrong_is_named_with_the_next_step(run: Run, stand_in: StandIn) -> None:
    stand_in.busy.lose()
    stand_in.other.fail(NO_PERMISSION, "nvmlDeviceGetUtilizationRates")
    stand_in.show()
    checks = _checks(run("doctor", "--json", code=0).stdout)
    assert checks["gpus"]["message"].startswith("GPU 0: ")
    assert "lost" in checks["gpus"]["message"]
    assert "reset" in checks["gpus"]["hint"]
    stand_in.world.gpus.remove(stand_in.busy)
    stand_in.show()
    checks = _checks(run("doctor", "--json", code=0).stdout)
    assert checks["gpus"]["message"] == "GPU 0: utilization no permission"


def test_no_driver_at_all_and_one_that_hangs(run: Run, stand_in: StandIn) -> None:
    ended = run("doctor", code=2, LD_LIBRARY_PATH="")
    for words in ("libnvidia-ml.so.1 was not found", "Install the NVIDIA driver", "fix the first"):
        assert words in ended.stdout
    stand_in.world.hangs["nvmlSystemGetDriverVersion"] = -1.0
    stand_in.show()
    checks = _checks(run("doctor", "--json", "--timeout", "3", code=0).stdout)
    assert checks["nvml"]["message"] == "no answer within 3 s"
