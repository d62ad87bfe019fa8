"""Every private name of torch that the tracer uses is told in PATCHES.md, with where to look when it changes."""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

TRACED = Path(__file__).parents[3] / "vramtui/dryrun/fake"
FILES = [*TRACED.rglob("*.py")]
SOURCE = "".join(path.read_text(encoding="utf-8") for path in FILES)
PAGE = (TRACED / "PATCHES.md").read_text(encoding="utf-8")
# Private names that are modules, of which something is taken.
MODULES = {"_C", "_acc", "_autograd", "_device", "_foreach_utils", "_functorch", "_internal", "_library", "_pytree"}
MODULES |= {"_builtins", "_python_dispatch", "_sharding_prop", "_subclasses", "_utils"}
NOT_TORCH = {"_current_frames", "_exit", "_getframe"}  # of the standard library
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<why>[^|]+) \| (?P<where>[^|]+) \|$", re.MULTILINE)


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """`torch._C._name` of an expression, through what the file imported and assigned; empty for any other."""
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def imported(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names |= {part.asname or part.name: f"{node.module}.{part.name}" for part in node.names}
        elif isinstance(node, ast.Import):
            parts = [part for part in node.names if part.name.split(".")[0] == "torch"]
            names |= {part.asname or "torch": part.name if part.asname else "torch" for part in parts}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts, strict=True))
            names |= {
                target.id: owner
                for target, value in pairs
                if isinstance(target, ast.Name) and (owner := dotted(value, names))
            }
    return names


def used(path: Path) -> Iterator[str]:
    """Each name up to its last private part; operators of `torch.ops` are no part of torch's insides."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = imported(tree)
    taken = set(names.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            taken.add(dotted(node, names))
        elif isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            taken.add(
                f"{dotted(node.args[0], names)}.{node.args[1].value!r}".replace("'", "")
            )  # patches.set(owner, "_name", …)
    yield from filter(None, map(shortened, taken))


def shortened(name: str) -> str:
    """The name up to its first class or its first private part that is no module; empty where nothing is private."""
    parts = name.split(".")
    first = next((at for at, part in enumerate(parts) if is_private(part)), len(parts))
    if parts[0] != "torch" or parts[1:2] == ["ops"] or first == len(parts):
        return ""
    for at in range(first, len(parts)):
        if parts[at][0].isupper() or (is_private(parts[at]) and parts[at] not in MODULES):
            return ".".join(parts[: at + 1])
    return name


def attributes() -> set[str]:
    """Private attributes of what is no name of a module, but for those that the tracer itself gives to something."""
    taken: set[str] = set()
    own = set(NOT_TORCH)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and is_private(node.attr):
                mine = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
                (own if mine or node.attr.startswith("_sim") else taken).add(node.attr)
    return taken - own - {part for name in all_used() for part in name.split(".")}


def all_used() -> set[str]:
    names = {name for path in FILES for name in used(path)}
    return {name for name in names if not any(other.startswith(f"{name}.") for other in names)}


def test_every_private_name_is_told() -> None:
    told = {row["name"] for row in ROW.finditer(PAGE)}
    assert all_used() - told == set(), "say in PATCHES.md what it stands in for and where to look"
    assert told - all_used() == set(), "no longer used: take it out of PATCHES.md"


@pytest.mark.slow
def test_private_attributes_are_told() -> None:
    operators = {attribute for attribute in attributes() if f"aten.{attribute}" in SOURCE}
    assert {name for name in attributes() - operators if f"`{name}`" not in PAGE} == set()


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_the_files_that_are_named_are_there() -> None:
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parents[1]
    files = {file for row in ROW.finditer(PAGE) for file in re.findall(r"`(torch/[^`]+\.py)`", row["where"])}
    assert {file for file in files if not (root / file).is_file()} == set()
    assert len(files) > 8
