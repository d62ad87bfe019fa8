"""The Python of a dry run: it needs only torch there."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.dryrun import job_command
from vramtui.dryrun.fake.run import TraceFailedError, trace
from vramtui.dryrun.job_command import Interpreter, job_interpreter
from vramtui.dryrun.result import TraceRequest
from vramtui.estimators.torch_facts.releases import release_of

OF_TORCH = (
    "torch", "torchgen", "functorch", "numpy", "numpy.libs", "typing_extensions.py", "sympy", "mpmath", "networkx",
    "jinja2", "markupsafe", "filelock", "fsspec", "setuptools", "_distutils_hack",
)  # fmt: skip
Environment = Callable[[str, str | None], Path]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No environment is active, and PATH has no Python."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Makes an environment whose torch is a version and nothing more."""

    def make(folder: str, version: str | None) -> Path:
        where = tmp_path / folder
        venv.create(where, symlinks=True)
        if version is not None:
            _packages(where, "torch").mkdir()
            (_packages(where, "torch") / "__init__.py").write_text("raise OSError('libcudart.so.13: cannot open')\n")
            (_packages(where, "torch") / "version.py").write_text(f"__version__ = '{version}'\ncuda = '13.0'\n")
        return where

    return make


def _packages(environment: Path, name: str) -> Path:
    return environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / name


def test_an_active_environment_goes_before_one_beside_the_script(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    beside, active = environment(".venv", "2.13.0"), environment("active", "2.14.1+cu130")
    script = tmp_path / "deep" / "train.py"
    script.parent.mkdir()
    script.write_text("#!/usr/bin/env python3\n")
    found = job_interpreter(str(script))
    assert (found.path, found.why, found.torch) == (beside / "bin/python", "next to the script", "2.13.0")
    monkeypatch.setenv("VIRTUAL_ENV", str(active))
    found = job_interpreter(str(script))
    assert (found.path, found.why, found.torch) == (active / "bin/python", "$VIRTUAL_ENV", "2.14.1+cu130")
    monkeypatch.setenv("VIRTUAL_ENV", str(environment("without torch", None)))
    assert job_interpreter(str(script)).path == beside / "bin/python"


def test_the_scripts_first_line_and_what_a_person_names(environment: Environment, tmp_path: Path) -> None:
    first, named = environment("first", "2.12.1"), environment("named", "2.15.0")
    script = tmp_path / "train.py"
    script.write_text(f"#!{first}/bin/python3 -u\n")
    assert job_interpreter(str(script)).path == first / "bin/python3"
    for text in (str(named), f"{named}/bin/python3", "named"):
        assert job_interpreter(str(script), text).torch == "2.15.0"
    with pytest.raises(UserError, match=r"--python nowhere: there is no such program, and no environment"):
        job_interpreter(str(script), "nowhere")


@pytest.mark.parametrize("receipt", [None, "uv-receipt.toml", "pipx_metadata.json"])
def test_vramtuis_own_goes_before_path_unless_it_was_made_for_vramtui_alone(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, receipt: str | None
) -> None:
    own, in_path = environment("own", "2.14.0"), environment("in path", "2.15.0")
    monkeypatch.setattr(sys, "executable", str(own / "bin" / "python"))
    monkeypatch.setattr(sys, "prefix", str(own))
    monkeypatch.setenv("PATH", str(in_path / "bin"))
    (script := tmp_path / "train.py").write_text("#!/usr/bin/env -S python3 -u\n")
    assert job_interpreter(str(script)).path == in_path / "bin" / "python3"
    if receipt is None:
        assert job_interpreter().why == "vramtui's own"
        monkeypatch.setattr(sys, "executable", str(environment("without torch", None) / "bin" / "python"))
    else:
        (own / receipt).touch()
    assert (job_interpreter().path, job_interpreter().why) == (in_path / "bin" / "python3", "in PATH")


def test_nobody_is_asked_behind_the_first_with_torch(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(environment("active", "2.13.0")))
    shim = tmp_path / "nothing" / "python3"
    shim.parent.mkdir()
    shim.write_text(f"#!/bin/sh\ntouch '{tmp_path}/asked'\n")
    shim.chmod(0o755)
    assert job_interpreter().why == "$VIRTUAL_ENV"
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("version", ["2.6.0+cu124", "2.11.0", "2.16.0a0+git1234", "1.13.1"])
def test_a_release_that_cannot_be_run_is_one_sentence(environment: Environment, version: str) -> None:
    old = environment("old", version)
    with pytest.raises(UserError) as refused:
        job_interpreter("", str(old), "fake" if version == "2.11.0" else "cuda")
    assert str(refused.value) == (
        "a dry run needs torch 2.12 to 2.15, with engine cuda 2.8 at least; "
        f"{old}/bin/python (--python) has {version}; "
        "`vramtui run` and the dashboard show such a job as it runs, and `vramtui estimate` needs no torch"
    )


def test_what_runs_follows_from_python_release_and_build() -> None:
    def refusal(python: str, torch: str = "2.13.0", cuda: str | None = None) -> str:
        return Interpreter(path=Path("/job/bin/python"), why="", python=python, torch=torch, cuda=cuda).refusal()

    assert refusal("3.9.18").startswith("a dry run needs Python 3.10 or newer, and /job/bin/python () is 3.9.18; ")
    assert (refusal("3.10.0"), refusal("3.14.0"), refusal("3.10.0", "2.8.0", "12.8")) == ("", "", "")
    assert refusal("3.10.0", "2.8.0").startswith("a dry run needs torch 2.12 to 2.15, with engine cuda 2.8 at least; ")


def test_nothing_within_reach_names_where_it_was_looked_for(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = environment("bare", None)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python"))
    with pytest.raises(UserError) as refused:
        job_interpreter()
    assert str(refused.value) == (
        f"no Python within reach has torch: {bare}/bin/python (vramtui's own); --python names the job's own, or "
        "install torch there"
    )


def test_one_that_does_not_answer_is_not_called_one_without_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = tmp_path / "silent" / "bin" / "python"
    silent.parent.mkdir(parents=True)
    silent.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    silent.chmod(0o755)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "silent"))
    monkeypatch.setattr(job_command, "LIMIT_CHOSEN", 0.2)
    monkeypatch.setattr(sys, "executable", str(silent))
    with pytest.raises(
        UserError, match=r"silent/bin/python \(\$VIRTUAL_ENV, it is no Python, or does not answer within 30 s"
    ):
        job_interpreter()


def test_a_torch_that_cannot_be_imported_is_told_before_the_code_runs(environment: Environment, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("open('ran', 'w')\n")
    broken = job_interpreter(named=str(environment("broken", "2.13.0")))
    with pytest.raises(
        TraceFailedError, match=r"the torch of .*broken/bin/python cannot be imported.*: libcudart\.so\.13"
    ):
        trace(TraceRequest(path=str(script), device=card("A100")), interpreter=broken)
    assert not (tmp_path / "ran").exists()


def test_a_version_is_read_by_its_release() -> None:
    assert [release_of(text) for text in ("2.13.0+cu130", "2.9", "main", "")] == [(2, 13), (2, 9), (0, 0), (0, 0)]


@pytest.mark.torch
def test_a_trace_needs_torch_alone_and_gives_the_same_figures(environment: Environment, tmp_path: Path) -> None:
    """Torch and what it needs are there by links; msgspec and vramtui are not."""
    bare = environment("bare", None)
    import torch  # noqa: PLC0415 - not where it is missing

    packages = Path(torch.__file__).parents[1]
    for name in OF_TORCH:
        if (packages / name).exists():
            _packages(bare, name).symlink_to(packages / name)
    missing = "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, ('msgspec', 'vramtui'))))"
    subprocess.run([bare / "bin/python", "-c", missing], check=True, env=dict(os.environ))
    script = tmp_path / "train.py"
    script.write_text(
        "import importlib.util, sys, torch\n"
        "assert (importlib.util.find_spec('msgspec') is None) == sys.prefix.endswith('bare')\n"
        "net = torch.nn.Sequential(torch.nn.Conv2d(8, 64, 3), torch.nn.Flatten(), torch.nn.Linear(57600, 8)).cuda()\n"
        "net(torch.randn(16, 8, 32, 32, device='cuda')).sum().backward()\n"
        "torch.optim.Adam(net.parameters()).step()\n"
    )
    request = TraceRequest(path=str(script), device=card("H200"))
    with_torch = job_interpreter(named=str(bare))
    bare_result = trace(request, interpreter=with_torch, timeout=300)
    own = Interpreter(path=Path(sys.executable), why="this one", torch=with_torch.torch)
    assert bare_result.peak_allocated > 1 << 20
    assert bare_result == trace(request, interpreter=own, timeout=300)
