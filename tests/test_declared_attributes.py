import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN = ("vramtui.app", "vramtui.monitor")


@cache
def class_bodies(module: str) -> dict[str, ast.ClassDef]:
    found: dict[str, ast.ClassDef] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = f"{prefix}{child.name}" if isinstance(child, (ast.ClassDef, ast.FunctionDef)) else prefix
            if isinstance(child, ast.ClassDef):
                found[name] = child
            visit(child, f"{name}." if isinstance(child, ast.ClassDef) else prefix)

    visit(ast.parse(Path(inspect.getfile(sys.modules[module])).read_text(encoding="utf-8")), "")
    return found


def assigned(method: ast.AST) -> Iterator[str]:
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def declared(cls: type) -> set[str]:
    names = set(dir(cls))
    for one in cls.__mro__:
        module = sys.modules[one.__module__]
        if getattr(module, "__file__", None) is None or not str(module.__file__).endswith(".py"):
            continue
        body = class_bodies(one.__module__).get(one.__qualname__)
        for part in body.body if body is not None else ():
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                names.add(part.target.id)
            if isinstance(part, ast.FunctionDef) and part.name in {"__init__", "__post_init__"}:
                names.update(assigned(part))
    return names


def classes() -> Iterator[type]:
    for package in OWN:
        folder = ROOT / package.replace(".", "/")
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
            for cls in vars(module).values():
                if isinstance(cls, type) and cls.__module__ == module.__name__:
                    yield cls


def test_methods_change_only_declared_attributes() -> None:
    wrong = {}
    for cls in classes():
        body = class_bodies(cls.__module__)[cls.__qualname__]
        methods = [part for part in body.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
        if names := {name for method in methods for name in assigned(method)} - declared(cls):
            wrong[f"{cls.__module__}.{cls.__qualname__}"] = names
    assert wrong == {}
