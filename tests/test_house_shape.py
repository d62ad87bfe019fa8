"""The size budget of the package, and names that mean one thing.

`LINES` and `FILES` are the size of the package today. Lower them with each deletion; never raise them.
Each exception to a rule below has its reason, and an exception that is no longer needed fails as well.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LINES, FILES = 81638, 357

# Public classes that stand for two things.
TWICE = {"VramCallback": "each training library's own callback, by the name that its users look for"}


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    lines: int
    classes: tuple[str, ...]
    defines: tuple[str, ...]
    words: Counter[str]


@cache
def files() -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for file in sorted((ROOT / "vramtui").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        classes = tuple(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        defines = tuple(name for statement in tree.body for name in names_of(statement))
        path = file.relative_to(ROOT).as_posix()
        modules[path] = Module(len(text.splitlines()), classes, defines, Counter(re.findall(r"\w+", text)))
    return modules


def name_of(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        return name_of(base.value)
    return base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""


def test_the_package_does_not_grow() -> None:
    assert sum(module.lines for module in files().values()) <= LINES
    assert len(files()) <= FILES


def test_no_module_is_named_utils_and_a_public_class_name_means_one_thing() -> None:
    vague = {"utils", "util", "helpers", "helper", "misc", "common_utils"}
    assert [path for path in files() if Path(path).stem in vague] == []
    count = Counter(name for module in files().values() for name in set(module.classes) if not name.startswith("_"))
    found = {name for name, number in count.items() if number > 1}
    assert (found - set(TWICE), set(TWICE) - found) == (set(), set())


def test_mathematics_begins_with_its_shapes() -> None:
    analytic = ROOT / "vramtui/estimators/analytic"
    paths = [path for folder in ("ops", "models") for path in (analytic / folder).rglob("*.py")]
    paths = [path for path in paths if path.name not in ("__init__.py", "registry.py")]
    said = {path.name: ast.get_docstring(ast.parse(path.read_text())) or "" for path in paths}
    assert len(said) > 10
    assert [name for name, doc in said.items() if "\nShapes: " not in doc] == []


# Names that stand once in the package and have a reader all the same.
READ_ELSEWHERE = {"_LEARNT": "msgspec learns its types while the module is loaded"}


def names_of(statement: ast.stmt) -> list[str]:
    if isinstance(statement, Definition):
        return [] if statement.decorator_list else [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_what_a_module_defines_is_used_by_the_package() -> None:
    folders = [ROOT / "vramtui" / name for name in ("estimators", "models/families")]
    data = (path for folder in folders for kind in ("json", "toml") for path in folder.rglob(f"*.{kind}"))
    written = Counter(word for path in data for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
    for module in files().values():
        written.update(module.words)
    defined = {name: path for path, module in files().items() for name in module.defines}
    unused = {
        name: path for name, path in defined.items() if written[name] == 1 and not name.startswith(("pytest_", "__"))
    }
    assert {name: path for name, path in unused.items() if name not in READ_ELSEWHERE} == {}
    assert set(READ_ELSEWHERE) - set(unused) == set()


# Names that begin with an underscore and are another's all the same, by the reason.
OTHERS_PRIVATE = {
    "the standard library's documented names": """
        os._exit _replace _asdict _fields""",
    "IPython's protocol": "_repr_html_",
    "Textual tells nowhere else what is on the screen, and when it lays one out": """
        screen._compositor Screen._refresh_layout""",
    "Textual parses the same styles anew for each app": "Stylesheet._parse_rules",
    "Textual's own clock, which a test makes late": "timer._time",
    "asyncio tells nowhere else what a loop has left to do": "loop._ready loop._scheduled",
    "Click parses without calling nowhere else": "context._protected_args",
    "torch's own, which a stand-in for its CUDA part replaces": """
        torch._C internals._cuda_attach_out_of_memory_observer""",
    "torch makes in no other way a tensor of another type that is a view of none": "OnCard._make_subclass",
    "pynvml keeps the library that it has loaded": "pynvml._nvmlGetFunctionPointer_cache pynvml._LoadNvmlLibrary",
}


# Where a file has none of these, it need not be parsed.
LIKELY = re.compile(r"(?<!self)(?<!cls)\._[a-zA-Z]|import .*\b_[a-zA-Z]|[\"']_[a-zA-Z]")


def private_names(path: Path) -> Iterator[str]:
    """`owner._name` for each private name that a file of the tests takes from somebody else: as an attribute, by import
    from this package, or as text in a call of `setattr` or of a patch.
    """
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if LIKELY.search(text) else ():
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner not in {"self", "cls"}:
                yield from _if_private(owner, node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vramtui"):
            for name in node.names:
                yield from _if_private(node.module or "", name.name)
        elif isinstance(node, ast.Call) and name_of(node.func) in {"setattr", "getattr", "patch", "object", "delattr"}:
            values = [part.value for part in node.args[:2] if isinstance(part, ast.Constant)]
            for value in values:
                if isinstance(value, str):
                    owner, _, attribute = f"{ast.unparse(node.args[0])}.{value}".rpartition(".")
                    yield from _if_private(owner.rpartition(".")[2], attribute)


def _if_private(owner: str, name: str) -> Iterator[str]:
    if name.startswith("_") and not name.startswith("__"):
        yield f"{owner}.{name}"


def test_no_test_reaches_into_what_is_private() -> None:
    allowed = {name for names in OTHERS_PRIVATE.values() for name in names.split()}
    taken = {
        f"{path.relative_to(ROOT)}: {found}"
        for path in (ROOT / "tests").rglob("*.py")
        for found in private_names(path)
        if not {found, found.rpartition(".")[2]} & allowed
    }
    assert taken == set()


# Tables by a closed set of words that leave some out, each with the reason.
PARTIAL = {
    "STATE_MARKS": "a process that runs or sleeps has no mark",
    "_KEYS": "rows are in the order of their hosts where it is not by a column",
    "_TEXTS": "two columns also look at the clock",
    "_ELEMENTWISE": "the others keep rows, columns or blocks",
    "LIFETIMES": "a trace sees no master weights: they are the optimizer's own tensors",
    "codes": "a run that goes on or was lost has none",
    "FIRST_STEP": "the demo's job trains: it has no phases of generation",
    "lines": "weights alone are there before training begins",
}


def word_sets() -> dict[str, frozenset[str]]:
    """The words of each type that is a `Literal`; of the types of one name, none."""
    sets: dict[str, set[frozenset[str]]] = defaultdict(set)
    for path in (ROOT / "vramtui").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body if "Literal[" in text else ():
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(value, ast.Subscript) and name_of(value.value) == "Literal":
                parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
                words = frozenset(str(part.value) for part in parts if isinstance(part, ast.Constant))
                if len(words) == len(parts):
                    sets[names_of(node)[0]].add(words)
    return {name: next(iter(found)) for name, found in sets.items() if len(found) == 1}


TABLE = re.compile(r"(?:dict|Mapping)\[[\w.]+, [^\n]*\] = \{")  # where a file has none it need not be parsed


def test_a_table_by_a_closed_set_of_words_has_all_of_them() -> None:
    """So that no word that is added is forgotten anywhere: a wrong one is a type error, a missing one fails here."""
    sets, partial = word_sets(), {}
    for path in (ROOT / "vramtui").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if TABLE.search(text) else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
                typed = re.match(r"(?:Final\[)?(?:dict|Mapping)\[(?:\w+\.)*(\w+), ", ast.unparse(node.annotation))
                keys = {part.value for part in node.value.keys if isinstance(part, ast.Constant)}
                words = sets.get(typed[1], frozenset()) if typed is not None else frozenset()
                if keys and words - keys and None not in node.value.keys:
                    partial[names_of(node)[0]] = f"{path}: {sorted(words - keys)}"
    assert len(sets) > 30
    assert {name: where for name, where in partial.items() if name not in PARTIAL} == {}
    assert set(PARTIAL) - set(partial) == set()
