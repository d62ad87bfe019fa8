"""Sizes that stay readable: a file, a class, a function. A budget is raised in RAISED, with its reason beside it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE, CLASS, FUNCTION = 400, 300, 60
RAISED: dict[str, int] = {}
FILES = sorted(path for folder in ("vramtui", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


def _sizes(path: Path) -> Iterator[tuple[str, int, int]]:
    """Everything in a file that has a budget: its name, its lines, its budget."""
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    yield name, text.count("\n"), FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            yield f"{name}:{node.name}", _lines(node), CLASS
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{name}:{node.name}", _lines(node), FUNCTION


def _lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_there_is_something_to_measure() -> None:
    assert len(FILES) > 50
    assert "vramtui/core/observation/readings.py:Gpu" in {
        name for name, _, _ in _sizes(ROOT / "vramtui/core/observation/readings.py")
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_it_fits_its_budget(path: Path) -> None:
    over = [f"{name}: {lines} lines" for name, lines, budget in _sizes(path) if lines > RAISED.get(name, budget)]
    assert not over


def test_no_budget_is_raised_in_vain() -> None:
    sizes = {name: lines for path in FILES for name, lines, _ in _sizes(path)}
    assert [name for name, budget in RAISED.items() if sizes.get(name, 0) > budget or name not in sizes] == []
