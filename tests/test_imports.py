"""What is loaded when: a static graph cannot see it, and start-up time depends on it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
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
    assert len(CLI) > 30
    loaded = _loaded(
        "import importlib, sys\n"
        f"for name in {['vramtui.cli', *CLI]}:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = {HEAVY} & sys.modules.keys()\n"
        "    assert not heavy, f'{name} loads {heavy}'"
    )
    assert "vramtui" in loaded


def _run(*arguments: str) -> set[str]:
    program = (
        "import sys; sys.argv[0] = 'vramtui'\n"
        "from vramtui.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code, ended.code"
    )
    return _loaded(program, *arguments)


def test_the_version_loads_next_to_nothing() -> None:
    loaded = _run("--version")
    assert not loaded & {*HEAVY, "typer", "msgspec", "psutil"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("ps", "--demo", "--json"),
        ("presets", "list", "--json"),
        ("estimate", "gpt2-124m", "--json"),
    ],
    ids=" ".join,
)
def test_an_answer_in_json_never_loads_the_screen(arguments: tuple[str, ...]) -> None:
    loaded = _run(*arguments)
    assert {"typer", "msgspec"} <= loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("package", ["core", "presets", "estimators", "monitor", "sources", "records"])
def test_only_the_app_and_the_command_line_load_the_screen(package: str) -> None:
    names = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "vramtui" / package).rglob("*.py")
    )
    loaded = _loaded(f"import importlib\nfor name in {names}: importlib.import_module(name)")
    assert not loaded & (HEAVY - {"pynvml"} if package == "sources" else HEAVY)


def test_one_file_imports_textuals_private_modules() -> None:
    """It says what each is for; the upper bound of textual in pyproject.toml hangs on these alone."""
    importing = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "vramtui").rglob("*.py")
        if re.search(r"^\s*(?:from|import) textual\._", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert importing == {"vramtui/app/terminal/textual_private.py"}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {_module(path): path for path in (ROOT / "vramtui").rglob("*.py")}
# Packages that load what they offer when it is used: naming one loads nothing.
LATE_THEMSELVES = {name for name, path in FILES.items() if "def __getattr__" in path.read_text(encoding="utf-8")}


def _imports(node: ast.AST, *, late: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Each import of this package that is run: its line, the module, and whether within a function."""
    parts = (getattr(node, part, ()) for part in ("body", "orelse", "finalbody", "handlers", "cases"))
    for child in (statement for part in parts for statement in part):  # expressions have none
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("vramtui"):
            module = child.module or ""
            for part in child.names:
                yield child.lineno, f"{module}.{part.name}" if f"{module}.{part.name}" in FILES else module, late
        yield from _imports(child, late=late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))


def _reached(start: str, arrows: dict[str, set[str]]) -> set[str]:
    """Every module that is loaded with `start`, the packages that it lies in too."""
    seen: set[str] = set()
    left = [start]
    while left:
        for name in arrows.get(left.pop(), ()):
            parts = name.split(".")
            inner = {".".join(parts[:length]) for length in range(1, len(parts) + 1)} - seen
            seen |= inner
            left += inner
    return seen


def test_no_import_is_late_in_vain() -> None:
    """What a file loads anyway, by its own first lines or by what those load, is imported there."""
    found = {name: list(_imports(ast.parse(path.read_text(encoding="utf-8")))) for name, path in FILES.items()}
    arrows = {name: {module for _, module, late in imports if not late} for name, imports in found.items()}
    in_vain = {
        f"{name}:{line} {module}"
        for name, imports in found.items()
        for line, module, late in imports
        if late and module not in LATE_THEMSELVES and module in _reached(name, arrows)
    }
    assert len(arrows) > 500
    assert in_vain == set()


def test_the_first_rows_wait_for_nothing_that_they_do_not_show() -> None:
    """What reads the GPUs, and the frame that shows them: no estimate is among it."""
    loaded = _loaded(
        "import vramtui.cli.dashboard.command, vramtui.sources.nvml, vramtui.sources.nvml.source\n"
        "import sys\n"
        "assert not [name for name in sys.modules if name.startswith(('vramtui.core.estimate', 'vramtui.core.runs'))]"
    )
    assert "pynvml" in loaded
    assert not loaded & {*HEAVY - {"pynvml"}, "psutil", "dataclasses", "json"}


def test_the_list_of_commands_loads_none_of_them() -> None:
    loaded = _run("--help")
    assert not loaded & {*HEAVY, "msgspec", "psutil", "markdown_it", "pygments"} - {"rich"}
