import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
CORE = """
import json, sys, vramtui
job = vramtui.estimate("gpt2-124m")
lora = vramtui.estimate("llama-3.1-8b-lora", method="analytic")
answers = [job.process, lora.process, vramtui.fit("gpt2-124m", gpu="H100").fits, len(vramtui.sample(demo=True).gpus)]
try:
    vramtui.sample()
except vramtui.UserError as error:
    answers.append(str(error))
import vramtui.integrations, vramtui.probe
alien = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(json.dumps([answers, sorted(alien - {"vramtui", "__main__", "__mp_main__"})]))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    folder = tmp_path_factory.mktemp("release")
    subprocess.run([sys.executable, str(ROOT / "packaging" / "split.py"), str(folder)], check=True)
    for name in ("vramtui", "vramtui-core"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
        subprocess.run(command, check=True, cwd=folder / name, capture_output=True)
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in (folder / "dist").glob("*.whl")}


def _files(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if name.startswith("vramtui/")}


def _metadata(wheel: zipfile.ZipFile) -> list[str]:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return wheel.read(name).decode().splitlines()


def test_together_they_are_the_checkout_and_each_asks_for_its_own(wheels: dict[str, zipfile.ZipFile]) -> None:
    core, program = _files(wheels["vramtui_core"]), _files(wheels["vramtui"])
    assert not core & program
    listed = subprocess.run(
        ["git", "ls-files", "vramtui"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    if listed:  # an unpacked sdist is no repository
        bundled = {name for name in core if name.startswith("vramtui/_bundled_presets/")}
        assert (core | program) - bundled == set(listed.split())
    assert {Path(name).parts[1] for name in program} == {"app", "cli", "monitor"}
    of_core, of_program = _metadata(wheels["vramtui_core"]), _metadata(wheels["vramtui"])
    version = next(line.partition(": ")[2] for line in of_core if line.startswith("Version: "))
    needed = [line for line in of_core if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert [line.partition(": ")[2].partition(">")[0] for line in needed] == ["msgspec", "tomli"]
    assert not any("<" in line.partition(";")[0] or "==" in line.partition(";")[0] for line in needed)
    assert f"Requires-Dist: vramtui-core=={version}" in of_program
    assert f"Requires-Dist: vramtui-core[torch]=={version}; extra == 'torch'" in of_program


def _run_in_core(wheels: dict[str, zipfile.ZipFile], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    wheels["vramtui_core"].extractall(folder)
    (folder / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    if sys.version_info < (3, 11):
        tomli = pytest.importorskip("tomli")
        (folder / "tomli").symlink_to(Path(tomli.__file__).parent)
    command = [sys.executable, "-S", *arguments]
    env = {"PYTHONPATH": str(folder), "HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=env)


def test_the_core_answers_with_msgspec_alone(wheels: dict[str, zipfile.ZipFile], tmp_path: Path) -> None:
    result = _run_in_core(wheels, tmp_path, "-c", CORE)
    assert not result.stderr
    (total, lora, fits, devices, refused), alien = msgspec.json.decode(result.stdout)
    assert (total > 1 << 30, lora > 1 << 30, fits, devices) == (True, True, True, 4)
    assert refused.startswith("sample needs ")
    assert refused.endswith("pip install 'vramtui-core[nvml]', or vramtui itself")
    assert alien == [name for name in ("msgspec", "tomli") if name in alien]


@pytest.mark.parametrize("command", ["", "ps", "trace train.py"])
def test_the_core_alone_names_the_rest(wheels: dict[str, zipfile.ZipFile], tmp_path: Path, command: str) -> None:
    result = _run_in_core(wheels, tmp_path, "-m", "vramtui", *command.split())
    assert result.returncode == 2
    assert result.stderr.startswith("vramtui: vramtui-core has no commands; the program is the distribution vramtui")
    assert result.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_the_wheels_own_code_runs_and_every_preset_travels(installed: Path) -> None:
    told = _answer(installed, "-c", "import vramtui; print(vramtui.__file__)", program="python")
    assert told.startswith(str(installed))
    assert _answer(installed, "--version").startswith("vramtui ")
    assert json.loads(_answer(installed, "ps", "--demo", "--json"))["source"] == "demo"
    (wheel,) = installed.glob("*.whl")
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"vramtui"}
    listed = json.loads(_answer(installed, "presets", "list", "--json"))["presets"]
    files = sorted(path.stem for path in (ROOT / "presets").rglob("*.toml"))
    assert sorted(preset["name"] for preset in listed) == files
    assert all(preset["path"].startswith(str(installed)) for preset in listed)
    estimate = json.loads(_answer(installed, "estimate", "gpt2-124m", "--json"))
    assert estimate["estimates"][0]["process"] > 0
