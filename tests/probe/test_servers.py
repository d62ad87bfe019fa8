import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables import rows
from vramtui.probe.socket_dir import REPORTS, SERVED, STEPS

LOADER = "vllm/model_executor/model_loader"
FILES = dict(rows(__file__, "files"))
JOB, QUANTIZED, REDUCTIONS, SAMPLED, ANSWERED, SERVER = (text for _, text in rows(__file__, "jobs"))


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for package in path.parents[: name.count("/")]:
            (package / "__init__.py").touch()
    return tmp_path


def _run(packages: Path, job: str, *arguments: str, **variables: str) -> tuple[str, str]:
    own = os.environ | {"PYTHONPATH": f"{packages}{os.pathsep}{Path(__file__).parents[2]}"} | variables
    ran = subprocess.run([sys.executable, "-c", job, *arguments], env=own, capture_output=True, text=True, check=True)
    return ran.stdout, ran.stderr


def test_missing_weights_are_made_up_or_quantized(packages: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}", encoding="utf-8")
    printed, errors = _run(packages, JOB, str(model))
    assert printed == "made up by its settings\n"
    assert errors == f"vramtui: no weights of {model} are here: they are made up from its config\n"
    (tmp_path / "model.safetensors").touch()
    assert _run(packages, JOB, str(tmp_path)) == ("read\n", "")
    assert _run(packages, QUANTIZED, str(tmp_path / "nothing"))[0] == "['.layers.']\n"
    assert _run(packages, QUANTIZED, str(tmp_path))[0] == "[]\n"


def test_vllm_answers_each_request_and_ends_once_it_listens(packages: Path) -> None:
    printed = "/driver/libcuda.so.1 None\n[] None None\ncompiled\nNone\ncompiled ipc compiled tree\n"
    assert _run(packages, REDUCTIONS, TRITON_LIBCUDA_PATH="/driver") == (printed, "")
    ends = {STEPS: "1", REPORTS: str(packages)}
    assert _run(packages, SERVER, "vllm") == _run(packages, SERVER, **ends) == ("False\n", "")
    assert _run(packages, SERVER, "vllm", **ends) == _run(packages, SERVER, "lmdeploy", **ends) == ("True\n", "")
    pytest.importorskip("numpy")
    assert _run(packages, SAMPLED) == ("1 0 1 1\n", "")
    printed, errors = _run(packages, ANSWERED)
    assert printed.splitlines() == ["64 at its end", "20 at the most", "90 at its end", "300 at the most"]
    assert errors == "vramtui: no end of an answer is sampled here: each ends after 64 tokens\n"


def test_sglang_ends_once_it_is_warm(packages: Path) -> None:
    job = "from vramtui.probe import servers; servers.prepare()\n"
    job += "from sglang.srt.entrypoints.http_server import launch; launch('its settings')"
    assert _run(packages, job)[0] == "warm by its settings\nserves\n"
    assert not (packages / SERVED).exists()
    _run(packages, job, **{STEPS: "1", REPORTS: str(packages)})
    assert (packages / SERVED).exists()
