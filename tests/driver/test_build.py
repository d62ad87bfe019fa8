"""The driver as the machine's compiler makes it, held to what cuda.h documents by a program in C."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from tests.driver.libraries import libraries
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.devices import Device
from vramtui.dryrun.cuda.build import DRIVER, NVML, NVML_PARTS, SOURCES, build, source_key
from vramtui.dryrun.cuda.environment import EmulatedCard, emulating, read_reports

CARD = EmulatedCard(
    device=Device(name="NVIDIA Test", capability=(8, 0), total_memory=4 * GIB),
    multiprocessors=108,
    context=384 * MIB,
    communicators=(64 * MIB, 32 * MIB),
    devices=2,
)
CHECKS = Path(__file__).with_name("driver_checks.c")
NAMES = (
    "devices", "properties", "allocation", "capacity", "virtual_memory", "exporting", "context", "pools", "values",
    "events", "collectives", "sharing", "graphs", "kernels", "names", "deep_learning", "versions", "budget", "handles",
)  # fmt: skip


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("checks") / "driver_checks"
    linked = ("-L", str(libraries()), f"-l:{DRIVER}")
    subprocess.run(
        ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(CHECKS), *linked, "-ldl"],
        check=True,
    )
    for name, source in (("libcudnn.so.9", "graph_library.c"), ("libcudart.so.12", "older_runtime.c")):
        library = ["-shared", "-fPIC", "-o", str(program.with_name(name)), str(CHECKS.with_name(source))]
        subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", *library], check=True)
    return program


def emulated(reports: Path) -> dict[str, str]:
    return emulating(os.environ, CARD, libraries(), reports)


def beside(checks: Path, reports: Path) -> dict[str, str]:
    """The same with what stands in for cuDNN and for the runtime of CUDA 12."""
    environment = emulated(reports)
    return environment | {"LD_LIBRARY_PATH": f"{environment['LD_LIBRARY_PATH']}{os.pathsep}{checks.parent}"}


@pytest.mark.parametrize("name", NAMES)
def test_the_driver_does_as_cuda_h_says(checks: Path, tmp_path: Path, name: str) -> None:
    ran = subprocess.run([checks, name], env=beside(checks, tmp_path), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_check_is_run(checks: Path, tmp_path: Path) -> None:
    ran = subprocess.run([checks], env=emulated(tmp_path), capture_output=True, text=True, check=True)
    assert tuple(ran.stdout.split()) == NAMES


def test_what_is_not_modelled_is_named_with_its_caller(checks: Path, tmp_path: Path) -> None:
    subprocess.run([checks, "names"], env=emulated(tmp_path), check=True)
    assert [one.unmodelled for one in read_reports(tmp_path)] == [(("cuOfTheFuture", "driver_checks"),)]


def test_a_second_build_takes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = libraries()
    monkeypatch.setenv("PATH", "")  # where no compiler is found
    assert libraries() == folder
    assert {DRIVER, NVML} <= {path.name for path in folder.iterdir()}  # and what another process may be making


def test_a_wheel_that_brings_the_libraries_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "c"
    sources.mkdir()
    monkeypatch.setattr("vramtui.dryrun.cuda.build.SOURCES", sources)
    brought = tmp_path / "prebuilt" / f"{platform.machine()}-{source_key()}"
    brought.mkdir(parents=True)
    (brought / DRIVER).touch()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build(tmp_path / "cache") == brought


def test_without_a_compiler_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UserError, match="needs a C compiler; no-such-compiler was not found: install gcc or clang"):
        build(tmp_path)


def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(UserError, match="false does not compile the driver"):
        build(tmp_path)


def test_the_cache_of_a_home_that_is_relative_is_found_from_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\nuntil [ "$1" = -o ]; do shift; done\n: > "$2"\n', encoding="utf-8")
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.chdir(tmp_path)
    folder = build(Path("cache"))
    assert folder.parent == tmp_path / "cache"
    assert {path.name for path in folder.iterdir()} == {DRIVER, NVML}


def test_the_compiler_writes_to_a_folder_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in (*NVML_PARTS, "driver.c"):
        (tmp_path / part).touch()
    monkeypatch.setattr("vramtui.dryrun.cuda.build.SOURCES", tmp_path)
    for name in ("a b", "a:b", "a;b", "données", "new\nline", "/".join((200 * "x", 200 * "y", 190 * "z"))):
        assert {path.name for path in build(tmp_path / name).iterdir()} == {DRIVER, NVML}


def test_the_c_is_as_short_as_was_promised() -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES.iterdir())
    assert lines <= 4000
