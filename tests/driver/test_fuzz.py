import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vramtui.dryrun.cuda.build import DRIVER, SOURCES, libraries

FUZZ = Path(__file__).with_name("driver_fuzz.c")
CARD = "NVIDIA Test;90;85899345920;132;536870912;2;1;1"
LEAST_FUNCTIONS = 906
KINDS = 6  # of arguments
ADDRESS, THREAD = "address,undefined", "thread"


def build(folder: Path, sanitizer: str) -> tuple[Path, Path]:
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip("there is no C compiler")
    options = ["-std=gnu11", "-g", "-fPIC", "-pthread", f"-fsanitize={sanitizer}", "-fno-sanitize=alignment"]
    options += ["-fno-sanitize-recover=all"] if sanitizer == ADDRESS else []
    program, library = folder / "fuzz", folder / DRIVER
    parts = [str(SOURCES / part) for part in libraries()[DRIVER]]
    for name, sources in ((library, ["-shared", "-fvisibility=hidden", *parts]), (program, [str(FUZZ)])):
        made = subprocess.run([compiler, *options, "-o", name, *sources, "-ldl"], capture_output=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"{compiler} cannot build with -fsanitize={sanitizer}")
    return program, library


def run(program: Path, *words: object, names: str = "") -> subprocess.CompletedProcess[str]:
    options = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "VRAMTUI_CARD": CARD, "LD_PRELOAD": ""}
    return subprocess.run(
        [program, *map(str, words)], input=names, capture_output=True, text=True, check=False, env=os.environ | options
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("fuzz"), ADDRESS)


@pytest.mark.parametrize("is_sample", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_no_argument_ends_the_process(built: tuple[Path, Path], *, is_sample: bool) -> None:
    program, library = built
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = [line.split()[2] for line in listed.splitlines() if line.split()[1] == "T"]
    assert len(names) >= LEAST_FUNCTIONS
    asked = names[:: len(names) // 30] if is_sample else names
    ran = run(program, library, names="\n".join(asked))
    assert (ran.returncode, ran.stdout) == (0, f"{len(asked) * KINDS} calls\n"), ran.stdout


@pytest.mark.slow
def test_eight_threads_do_not_race(tmp_path: Path) -> None:
    ran = run(*build(tmp_path, THREAD), 8)
    assert (ran.returncode, ran.stderr) == (0, "")
