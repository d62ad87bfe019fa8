"""What is in the wheel: everything, the presets too."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it, and the libraries of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([*pip, *build], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    python = folder / "env" / "bin" / "python"
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    # Only the folder itself: what its own .pth files add, this checkout among it, is not taken over.
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    return folder


def _answer(installed: Path, *arguments: str, program: str = "vramtui") -> str:
    command = [str(installed / "env" / "bin" / program), *arguments]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=installed, env=env).stdout


def test_it_is_the_wheels_own_code_that_runs_and_nothing_else_is_in_it(installed: Path) -> None:
    told = _answer(installed, "-c", "import vramtui; print(vramtui.__file__)", program="python")
    assert told.startswith(str(installed))
    assert _answer(installed, "--version").startswith("vramtui ")
    assert json.loads(_answer(installed, "ps", "--demo", "--json"))["source"] == "demo"
    (wheel,) = installed.glob("*.whl")
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"vramtui"}


def test_every_preset_travels_and_can_be_estimated(installed: Path) -> None:
    listed = json.loads(_answer(installed, "presets", "list", "--json"))["presets"]
    files = sorted(path.stem for path in (ROOT / "presets").rglob("*.toml"))
    assert sorted(preset["name"] for preset in listed) == files
    assert all(preset["path"].startswith(str(installed)) for preset in listed)
    estimate = json.loads(_answer(installed, "estimate", "gpt2-124m", "--json"))
    assert estimate["estimates"][0]["process"] > 0
