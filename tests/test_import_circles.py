"""No file imports another that imports it in turn, late imports included; what only names a type does not count."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "vramtui"

# Circles that are left, each with its reason; one that is gone fails until it is taken out of here.
CIRCLES: dict[tuple[str, ...], str] = {}


def module_name(path: Path) -> str:
    """`app.plan.screen` of `vramtui/app/plan/screen.py`; a package by its own name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement, at any depth, but those that only type checkers read; expressions are not walked."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
                yield child
                yield from statements(child)


def imports() -> dict[str, set[str]]:
    files = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    arrows: dict[str, set[str]] = {}
    for name, path in files.items():
        named = set()
        for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vramtui"):
                module = (node.module or "").removeprefix("vramtui").lstrip(".")
                named |= {
                    f"{module}.{part.name}" if f"{module}.{part.name}" in files else module for part in node.names
                }
            elif isinstance(node, ast.Import):
                named |= {part.name.removeprefix("vramtui.") for part in node.names}
        arrows[name] = (named & set(files)) - {name}
    return arrows


def circles(arrows: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """Files that reach one another, in the order of their names: what is left when those that begin or end go."""
    left = {name: set(others) for name, others in arrows.items()}
    while ends := {name for name, others in left.items() if not others & set(left)}:
        left = {name: others & set(left) - ends for name, others in left.items() if name not in ends}
    reach = {name: reached(name, left) for name in left}
    groups = ({name, *(other for other in reach[name] if name in reach.get(other, ()))} for name in left)
    return {tuple(sorted(group)) for group in groups if len(group) > 1}


def reached(start: str, arrows: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for other in arrows.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def test_no_files_import_one_another() -> None:
    found = circles(imports())
    assert found - set(CIRCLES) == set()
    assert set(CIRCLES) - found == set()
