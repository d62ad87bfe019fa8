import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped] # carries no types

from vramtui.cli.main import program
from vramtui.presets.job_flags import FLAGS

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|#|mailto:)([^)#\s]+)")
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md"))
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 1.32 GiB is free. Process 4711 has 4.10 GiB memory in use. Including non-PyTorch memory, this process "
    "has 18.20 GiB memory in use. Of the allocated memory 17.05 GiB is allocated by PyTorch, and 622.10 MiB is "
    "reserved by PyTorch but unallocated."
)
REPOSITORY = "https://github.com/vramtui/vramtui/"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = runpy.run_path(str(ROOT / "docs" / "build.py"))
    pages: Path = tmp_path_factory.mktemp("site") / "docs"
    program["main"].__globals__["PAGES"] = pages
    program["main"]()
    return pages


def test_every_page_is_in_the_navigation_and_every_part_has_its_source(built: Path) -> None:
    named = set(re.findall(r"[\w/.-]+\.md", yaml.safe_dump(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])))
    assert named == {str(path.relative_to(built)) for path in built.rglob("*.md")}
    dead = [
        f"{path.relative_to(built)}: {link}"
        for path in built.rglob("*.md")
        for link in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / link).exists()
    ]
    assert dead == []
    text = (built / "how-it-works.md").read_text(encoding="utf-8")
    section = text.split("## Parts and their formulas")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) > 30
    assert [row for row in rows if len(row.split(" | ")) != 4 or "|  |" in row] == []


def test_the_readmes_links_are_of_files_that_are_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert LINK.findall(text) == []
    raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com") + "main/"
    files = [
        link.partition(f"{REPOSITORY}blob/main/")[2] or link.partition(raw)[2]
        for link in re.findall(r"\]\(([^)]+)\)", text)
    ]
    assert files
    assert [file for file in files if file and not (ROOT / file).exists()] == []


def _commands() -> Iterator[tuple[str, str]]:
    for path in (*PAGES, ROOT / "README.md", *(ROOT / "packaging").rglob("*.md")):
        text = path.read_text(encoding="utf-8").replace("\\|", "|")
        lines = [
            line for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL) for line in block.split("\n")
        ]
        for line in (*lines, *re.findall(r"`((?:vramtui|ssh) [^`\n]+)`", text)):
            if not re.match(r"(\$ )?(pip|docker|apptainer)", line):
                for called in re.split(r" \| ", line.partition("  #")[0].partition(" > ")[0]):
                    found = re.findall(r"(?:^|\s)vramtui( .+)$", called)
                    # Parsing --install-completion would run it, and it writes to the user's own shell settings.
                    yield from ((path.name, one) for one in found if one != " --install-completion")


def _parse(command: Any, words: Sequence[str], parent: object = None, name: str = "vramtui") -> None:
    context = command.make_context(name, list(words), parent=parent)
    rest = [*context._protected_args, *context.args]
    if rest and hasattr(command, "resolve_command"):
        name, below, rest = command.resolve_command(context, rest)
        _parse(below, rest, context, name)


def test_every_command_and_flag_that_is_printed_is_one_and_the_readme_is_short() -> None:
    """Its options and subcommands are known and its values are of their kind; nothing is run. A command may be named
    without what it needs; words in capitals stand for something.
    """
    root = typer.main.get_command(program())
    commands = list(_commands())
    assert len(commands) > 60
    told = [f"{file}: vramtui{called}: {_fault(root, called)}" for file, called in commands]
    assert [line for line in told if not line.endswith(": None")] == []
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [flag.name for flag in FLAGS if f"| `--{flag.name}" not in page] == []
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert len(re.findall(r"^!\[", text, re.MULTILINE)) == 1


def _fault(root: Any, called: str) -> str | None:
    try:
        _parse(root, shlex.split(called))
    except Exception as error:  # noqa: BLE001 - Click's own, which Typer carries with it
        if type(error).__name__ != "MissingParameter" and not re.search(r"'[A-Z]+'", str(error)):
            return str(error)
    except SystemExit:  # with --json a command itself says what is wrong
        return _fault(root, called.replace(" --json", ""))
    return None


def _sessions() -> Iterator[tuple[str, str, list[str]]]:
    """Each command whose output a page prints: page, words behind the prompt, the lines; `…` stands for any number."""
    for path in PAGES:
        for block in re.findall(r"```console\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            prompt, *lines = block.rstrip().splitlines()
            yield path.name, prompt.removeprefix("$ "), lines


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command", "lines"), [pytest.param(*one, id=one[1]) for one in _sessions()])
def test_a_page_prints_what_its_command_prints(page: str, command: str, lines: list[str], tmp_path: Path) -> None:
    """The message of oom's page is the one below; everything else a page names is there in an empty folder."""
    (tmp_path / "train.log").write_text(MESSAGE)
    program, *words = shlex.split(command)
    assert program == "vramtui", page
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "COLUMNS": "158"}
    ran = subprocess.run(
        [sys.executable, "-m", "vramtui", *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else re.escape(line) + r" *\n" for line in lines)
    assert re.fullmatch(pattern, ran.stdout or ran.stderr), f"{page}: {command} prints\n{ran.stdout}{ran.stderr}"


def test_the_readme_states_the_errors_of_the_table() -> None:
    """Public models, by what `estimate` takes for each unless it is told another method."""
    hard = {"generic", "compiled", "conv net", "multi-gpu", "ddp"}
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| ([^|]+) \(public models\) \| peak of reserved \|.*\| ([\d.]+)% \| [+-]([\d.]+)% \|", page)
    figures = [(kind in hard, float(median), float(worst)) for kind, median, worst in rows]
    assert {kind for kind, _, _ in rows} > hard
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = re.search(r"below ([\d.]+) % .*?\(worst (\d+) %\), and ([\d.]+) to (\d+) % .*?\(worst (\d+) %\)", text)
    median, worst, least, most, worst_of_all = map(float, said.groups())
    assert median - 0.1 <= max(middle for harder, middle, _ in figures if not harder) < median
    assert worst - 1 < max(far for harder, _, far in figures if not harder) <= worst + 0.1
    assert all(least < middle < most for harder, middle, _ in figures if harder)
    assert worst_of_all - 1 < max(far for harder, _, far in figures if harder) <= worst_of_all
