"""Imports within the package: no file imports another that imports it in turn, late imports included, and none is late
in vain. What only names a type does not count.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Circles that are left, each with its reason; one that is gone fails until it is taken out of here.
CIRCLES: dict[tuple[str, ...], str] = {}


# By the name of the module, a package by its own.
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "vramtui").rglob("*.py")
}
# Packages that load what they offer when it is used: naming one loads nothing.
LATE_THEMSELVES = {name for name, path in FILES.items() if "def __getattr__" in path.read_text(encoding="utf-8")}


def imports(node: ast.AST, *, late: bool = False) -> Iterator[tuple[int, str, bool]]:
    parts = (getattr(node, part, ()) for part in ("body", "orelse", "finalbody", "handlers", "cases"))
    for child in (statement for part in parts for statement in part):  # expressions have none
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("vramtui"):
            module = child.module or ""
            for part in child.names:
                yield child.lineno, f"{module}.{part.name}" if f"{module}.{part.name}" in FILES else module, late
        elif isinstance(child, ast.Import):
            yield from ((child.lineno, part.name, late) for part in child.names if part.name in FILES)
        yield from imports(child, late=late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))


@cache
def every_import() -> dict[str, list[tuple[int, str, bool]]]:
    return {name: list(imports(ast.parse(path.read_text(encoding="utf-8")))) for name, path in FILES.items()}


def reached(start: str, arrows: Mapping[str, set[str]], *, packages: bool = False) -> set[str]:
    """Every module that is loaded with `start`; with `packages` those that they lie in too."""
    seen: set[str] = set()
    left = [start]
    while left:
        for name in arrows.get(left.pop(), ()):
            parts = name.split(".")
            inner = {".".join(parts[:length]) for length in range(1 if packages else len(parts), len(parts) + 1)} - seen
            seen |= inner
            left += inner
    return seen


def test_no_files_import_one_another_and_no_import_is_late_in_vain() -> None:
    left = {name: {module for _, module, _ in found} & set(FILES) - {name} for name, found in every_import().items()}
    while ends := {name for name, others in left.items() if not others & set(left)}:  # those that begin or end go
        left = {name: others & set(left) - ends for name, others in left.items() if name not in ends}
    reach = {name: reached(name, left) for name in left}
    groups = ({name, *(other for other in reach[name] if name in reach.get(other, ()))} for name in left)
    found = {tuple(sorted(group)) for group in groups if len(group) > 1}
    assert (found - set(CIRCLES), set(CIRCLES) - found) == (set(), set())
    # What a file loads anyway, by its own first lines or by what those load, is imported there.
    arrows = {name: {module for _, module, late in found if not late} for name, found in every_import().items()}
    in_vain = {
        f"{name}:{line} {module}"
        for name, found in every_import().items()
        for line, module, late in found
        if late and module not in LATE_THEMSELVES and module in reached(name, arrows, packages=True)
    }
    assert len(arrows) > 300
    assert in_vain == set()
