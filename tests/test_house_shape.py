"""What keeps the house: sizes of files, functions, folders and classes with their bases; names that mean one thing.

A rule that something cannot keep has it in one of the lists below, with its reason; an entry that is not needed any
more fails as well.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FILE, FUNCTION, CLASS, FOLDER, SMALL = 400, 60, 300, 15, 40

# Folders of which all files are of one kind, behind one registry.
OF_ONE_KIND = {
    "vramtui/estimators/rules": "a file for each published rule, listed in rules/__init__",
    "vramtui/estimators/traced/kernels": "a file for each family of operators, listed in kernels/__init__",
}
# Classes that are more than the rule has with their bases.
LARGE: dict[str, str] = {
    "Dashboard": "every message of the app and every action that is true on all screens, one line or two each",
    "EditorScreen": "being taken apart: its file, its beginnings and its form are subjects of their own",
    "FileActions": "as EditorScreen",
    "FileWatcher": "as EditorScreen",
    "FormPanel": "as EditorScreen",
    "NewPreset": "as EditorScreen",
    "TypedForm": "as EditorScreen",
    "Draft": "an edited text and the preset that it says",
}
# Bases that have one subclass. A Protocol is none of these.
SINGLE = {
    "EditedText": "taken apart with Draft",
    "FileActions": "as EditorScreen",
    "FileWatcher": "as EditorScreen",
    "FormRows": "as EditorScreen",
    "NewPreset": "as EditorScreen",
    "TypedForm": "as EditorScreen",
    "Meter": "the journal of a job is asked as the meter is",
    "_Silent": "what torch asks to be quiet; DDP's reducer adds its buckets to that",
    "Trainer": "one rank of a sharded job follows the same two steps",
}
# Public classes that stand for two things.
TWICE = {
    "Attention": "the lab's own module in torch, beside the analytic one",
    "Block": "as Attention",
    "ManualNorm": "as Attention",
    "VramCallback": "each training library's own callback, by the name that its users look for",
}


class Class(NamedTuple):
    """A class: where it is, its lines, and the names of its bases."""

    path: str
    lines: int
    bases: tuple[str, ...]


@cache
def files() -> dict[str, ast.Module]:
    """Every module of the package by its path."""
    found = sorted((ROOT / "vramtui").rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in found}


@cache
def lines_of(path: str) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


@cache
def classes() -> dict[str, list[Class]]:
    """Every class by its name."""
    found: dict[str, list[Class]] = defaultdict(list)
    for path, tree in files().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = tuple(filter(None, map(name_of, node.bases)))
                found[node.name].append(Class(path, length(node), bases))
    return found


def name_of(base: ast.expr) -> str:
    """`Name`, `module.Name` and `Name[...]` are all called `Name`."""
    if isinstance(base, ast.Subscript):
        return name_of(base.value)
    return base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""


def length(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def with_bases(name: str) -> int:
    """The lines of a class and of all its bases in this package."""
    family: set[str] = set()
    left = [name]
    while left:
        one = left.pop()
        if one in classes() and one not in family:
            family.add(one)
            left += [base for kind in classes()[one] for base in kind.bases]
    return sum(max(kind.lines for kind in classes()[one]) for one in family)


def single_bases() -> Iterator[str]:
    """Every base of this package with exactly one subclass in it; protocols and abstract classes apart."""
    subclasses: dict[str, set[str]] = defaultdict(set)
    for name, kinds in classes().items():
        for kind in kinds:
            for base in kind.bases:
                subclasses[base].add(name)
    for base, found in subclasses.items():
        abstract = any({"Protocol", "ABC"} & set(kind.bases) for kind in classes().get(base, ()))
        if base in classes() and len(found) == 1 and not abstract:
            yield base


def test_no_file_is_too_long() -> None:
    assert {path: lines_of(path) for path in files() if lines_of(path) > FILE} == {}


def test_no_function_is_too_long() -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    every = ((path, node) for path, tree in files().items() for node in ast.walk(tree) if isinstance(node, kinds))
    assert {f"{path}:{node.name}": length(node) for path, node in every if length(node) > FUNCTION} == {}


def test_a_folder_holds_what_one_can_keep_in_mind() -> None:
    count = Counter(str(Path(path).parent) for path in files() if not path.endswith("__init__.py"))
    assert {folder for folder, number in count.items() if number > FOLDER} == set(OF_ONE_KIND)


def test_no_class_is_too_long_with_its_bases() -> None:
    over = {name for name in classes() if with_bases(name) > CLASS}
    assert {name: with_bases(name) for name in over - set(LARGE)} == {}
    assert set(LARGE) - over == set()


def test_no_base_has_one_subclass() -> None:
    found = set(single_bases())
    assert found - set(SINGLE) == set()
    assert set(SINGLE) - found == set()


def test_a_public_class_name_means_one_thing() -> None:
    found = {name for name, kinds in classes().items() if len({kind.path for kind in kinds}) > 1}
    public = {name for name in found if not name.startswith("_")}
    assert public - set(TWICE) == set()
    assert set(TWICE) - public == set()


@pytest.mark.parametrize("words", [LARGE, SINGLE, TWICE, OF_ONE_KIND], ids=["large", "single", "twice", "one kind"])
def test_every_exception_has_its_reason(words: dict[str, str]) -> None:
    assert all(len(reason) > 8 for reason in words.values())
