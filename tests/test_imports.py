import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "transformers", "pynvml", "textual", "rich", "numpy", "plotext"}
CLI = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "vramtui/cli").rglob("*.py")
    if path.stem != "__init__" and path.parent.name != "dashboard"
)


def _loaded(program: str, *arguments: str) -> set[str]:
    """The top-level modules in a fresh interpreter after `program`, whose own output is thrown away."""
    report = (
        "\nimport sys; sys.stderr.write('\\nLOADED ' + ' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program + report, *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return set(ended.stderr.rpartition("LOADED ")[2].split())


def test_the_command_line_loads_nothing_heavy() -> None:
    """One process loads file after file: what is heavy is named with the first that brings it."""
    assert len(CLI) > 15
    loaded = _loaded(
        "import importlib, sys\n"
        f"for name in {['vramtui.cli', *CLI]}:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = {HEAVY} & sys.modules.keys()\n"
        "    assert not heavy, f'{name} loads {heavy}'"
    )
    assert "vramtui" in loaded


def _run(*arguments: str) -> set[str]:
    program = "import sys; sys.argv[0] = 'vramtui'; from vramtui.__main__ import main\ntry: main()\n"
    return _loaded(f"{program}except SystemExit as ended: assert not ended.code, ended.code", *arguments)


@pytest.mark.parametrize(("arguments", "needed", "left_out"), [
    ("ps --demo --json", {"typer", "msgspec"}, HEAVY),
    ("presets list --json", {"typer", "msgspec"}, HEAVY),
    ("estimate gpt2-124m --json", {"typer", "msgspec"}, HEAVY),
    ("--version", set(), {*HEAVY, "typer", "msgspec", "psutil"}),
    ("--help", set(), {*HEAVY, "msgspec", "psutil", "markdown_it", "pygments"} - {"rich"}),
])  # fmt: skip
def test_an_answer_never_loads_the_screen(arguments: str, needed: set[str], left_out: set[str]) -> None:
    loaded = _run(*arguments.split())
    assert needed <= loaded
    assert not loaded & left_out


@pytest.mark.parametrize("package", ["core", "presets", "estimators", "monitor", "sources", "records"])
def test_only_the_app_and_the_command_line_load_the_screen(package: str) -> None:
    names = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "vramtui" / package).rglob("*.py")
    )
    loaded = _loaded(f"import importlib\nfor name in {names}: importlib.import_module(name)")
    assert not loaded & (HEAVY - {"pynvml"} if package == "sources" else HEAVY)


def test_one_file_imports_textuals_private_modules_and_the_first_rows_wait_for_nothing() -> None:
    """It says what each is for; the upper bound of textual in pyproject.toml hangs on these alone."""
    importing = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "vramtui").rglob("*.py")
        if re.search(r"^\s*(?:from|import) textual\._", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert importing == {"vramtui/app/terminal/textual_private.py"}
    # What reads the GPUs, and the frame that shows them: no estimate is among it.
    loaded = _loaded(
        "import vramtui.cli.dashboard.command, vramtui.sources.nvml, vramtui.sources.nvml.source\n"
        "import sys\n"
        "assert not [name for name in sys.modules if name.startswith(('vramtui.core.estimate', 'vramtui.core.runs'))]"
    )
    assert "pynvml" in loaded
    assert not loaded & {*HEAVY - {"pynvml"}, "psutil", "dataclasses", "json"}
