"""What keeps the house: sizes of files, functions, folders and classes with their bases; names that mean one thing.

A rule that something cannot keep has it in one of the lists below, with its reason; an entry that is not needed any
more fails as well.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FILE, FUNCTION, CLASS, FOLDER, SMALL, PARAMETERS = 400, 60, 300, 15, 40, 6

# Folders of which all files are of one kind, behind one registry.
OF_ONE_KIND: dict[str, str] = {
    "vramtui/probe": "one package that a job loads whole, by its folder; six of its files serve emulated cards alone",
}
# Classes that are more than the rule has with their bases.
LARGE: dict[str, str] = {
    "Dashboard": "every message of the app and every action that is true on all screens, one line or two each",
}
# Bases that have one subclass. A Protocol is none of these.
SINGLE = {
    "_Silent": "what torch asks to be quiet; DDP's reducer adds its buckets to that",
}
# Files of fewer lines than SMALL, by the reason for which they are apart.
SHORT = {
    "a command of the command line": """
        cli/convert cli/history/report cli/schema""",
    "an experiment's own process, or a library's own adapter": """
        cli/run/shielded driver/run_python
        estimators/traced/experiments/marks estimators/traced/experiments/native
        integrations/accelerate""",
    "loaded only where it is asked for, apart from what is loaded at once": """
        cli/common/plot cli/common/versions
        estimators/analytic/generation/forward""",
    "read by several that do not read one another": """
        estimators/torch_facts/releases
                core/base/clock core/base/late core/base/latest
        app/editor/host app/editor/keys app/terminal/delayed_calls
        app/terminal/screen_size app/terminal/textual_private app/timeline/view
        core/observation/signals
        estimators/analytic/sizes/nccl
        estimators/torch_facts/cublas
        estimators/traced/device/patches estimators/traced/kernels/registry
        estimators/traced/libraries/linear
        core/base/toml probe/socket_dir
        records/export/sanitize sources/host/host""",
    "a kind of module": """
        models/kinds/conv models/kinds/embedding models/kinds/linear models/kinds/mlp models/kinds/norm
        models/kinds/recurrent
        estimators/analytic/ops/mlp estimators/traced/modules/mlp estimators/traced/modules/norm
        estimators/traced/modules/recurrent""",
    "one subject beside larger ones of its kind": """
        app/help/controller
        estimators/analytic/serving/engine""",
}
# Functions of more than PARAMETERS parameters, each with how many it has, by the reason; the list may only shrink.
WIDE = {
    "the arguments of another library's kernel, as that library has them": """
        estimators/traced/libraries/compiled_kernels:scan_forward=7""",
    "every figure of PyTorch's own message; a part of a published rule with all that is printed of it": """
        estimators/allocator/failure:__init__=7 estimators/rules/base:add=7""",
    "a documented function for others' code": """
        api/tracing:trace=11""",
}
# Modules whose name ends in -ing: the field's own words, and nouns.
GERUNDS = {
    "PyTorch's, CUDA's and other libraries' words": """
        estimators/allocator/caching estimators/analytic/serving/vllm_profiling
        estimators/traced/kernels/embedding estimators/traced/kernels/indexing integrations/lightning
        models/kinds/embedding
        app/plan/sharding""",
    "nouns: a recording, Slurm's and NVML's accounting, a trace": """
        records/recording/growing_recording records/recording/recording sources/nvml/accounting
        api/tracing""",
}
# Public classes that stand for two things.
TWICE = {
    "VramCallback": "each training library's own callback, by the name that its users look for",
}


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Class(NamedTuple):
    """A class: where it is, its lines, and the names of its bases."""

    path: str
    lines: int
    bases: tuple[str, ...]


class Module(NamedTuple):
    """A file: its lines, its functions with their lines and parameters, what its statements define, and its words."""

    lines: int
    functions: tuple[tuple[str, int, int], ...]
    defines: tuple[str, ...]
    words: Counter[str]


@cache
def package() -> tuple[dict[str, Module], dict[str, list[Class]]]:
    """Every module of the package by its path and every class by its name; each file is read and parsed once."""
    modules: dict[str, Module] = {}
    found: dict[str, list[Class]] = defaultdict(list)
    for file in sorted((ROOT / "vramtui").rglob("*.py")):
        text, path = file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix()
        functions = []
        tree = ast.parse(text)
        for node in definitions(tree):
            if isinstance(node, ast.ClassDef):
                bases = tuple(filter(None, map(name_of, node.bases)))
                found[node.name].append(Class(path, length(node), bases))
            else:
                functions.append((node.name, length(node), parameters(node)))
        defines = tuple(name for statement in tree.body for name in names_of(statement))
        words = Counter(re.findall(r"\w+", text))
        modules[path] = Module(len(text.splitlines()), tuple(functions), defines, words)
    return modules, found


def files() -> dict[str, Module]:
    return package()[0]


def classes() -> dict[str, list[Class]]:
    return package()[1]


def definitions(tree: ast.Module) -> Iterator[Definition]:
    """Every class and function at any depth; only statements hold some, so that expressions are not walked."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, Definition):
            yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, ())
            left += inner if isinstance(inner, list) else ()


def name_of(base: ast.expr) -> str:
    """`Name`, `module.Name` and `Name[...]` are all called `Name`."""
    if isinstance(base, ast.Subscript):
        return name_of(base.value)
    return base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""


def length(node: Definition) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a function takes, the object or class it belongs to apart."""
    names = [part.arg for part in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


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
    assert {path: module.lines for path, module in files().items() if module.lines > FILE} == {}


def test_no_function_is_too_long() -> None:
    every = ((path, name, lines) for path, module in files().items() for name, lines, _ in module.functions)
    assert {f"{path}:{name}": lines for path, name, lines in every if lines > FUNCTION} == {}


def test_no_function_takes_too_many_parameters() -> None:
    every = ((path, *function) for path, module in files().items() for function in module.functions)
    wide = {
        f"{path.removeprefix('vramtui/').removesuffix('.py')}:{name}={count}"
        for path, name, _, count in every
        if count > PARAMETERS
    }
    allowed = {name for names in WIDE.values() for name in names.split()}
    assert wide - allowed == set()
    assert allowed - wide == set()


def test_a_folder_holds_what_one_can_keep_in_mind() -> None:
    count = Counter(str(Path(path).parent) for path in files() if not path.endswith("__init__.py"))
    assert {folder for folder, number in count.items() if number > FOLDER} == set(OF_ONE_KIND)


def paths_of(lists: dict[str, str]) -> set[str]:
    return {f"vramtui/{name}.py" for names in lists.values() for name in names.split()}


def test_a_short_file_has_its_reason() -> None:
    short = {path for path, module in files().items() if module.lines < SMALL and not path.endswith("__init__.py")}
    assert short - paths_of(SHORT) == set()
    assert paths_of(SHORT) - set(files()) == set()


def test_no_other_module_is_named_by_what_it_does() -> None:
    named = {path for path in files() if path.endswith("ing.py")}
    assert named - paths_of(GERUNDS) == set()
    assert paths_of(GERUNDS) - set(files()) == set()


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


def test_mathematics_begins_with_its_shapes() -> None:
    analytic = ROOT / "vramtui/estimators/analytic"
    files = [path for folder in ("ops", "models") for path in (analytic / folder).rglob("*.py")]
    files = [path for path in files if path.name not in ("__init__.py", "registry.py")]
    said = {path.name: ast.get_docstring(ast.parse(path.read_text())) or "" for path in files}
    assert len(said) > 20
    assert [name for name, doc in said.items() if "\nShapes: " not in doc] == []


# Names that stand once in the package and have a reader all the same.
READ_ELSEWHERE = {
    "_LEARNT": "msgspec learns its types while the module is loaded",
    "load_ipython_extension": "IPython calls it for `%load_ext`",
}


def names_of(statement: ast.stmt) -> list[str]:
    """What a statement of a module defines; nothing where a decorator may hand it on."""
    if isinstance(statement, Definition):
        return [] if statement.decorator_list else [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_what_a_module_defines_is_used_by_the_package() -> None:
    data = (path for kind in ("json", "toml") for path in (ROOT / "vramtui/estimators").rglob(f"*.{kind}"))
    written = Counter(word for path in data for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
    for module in files().values():
        written.update(module.words)
    defined = {name: path for path, module in files().items() for name in module.defines}
    unused = {
        name: path for name, path in defined.items() if written[name] == 1 and not name.startswith(("pytest_", "__"))
    }
    assert {name: path for name, path in unused.items() if name not in READ_ELSEWHERE} == {}
    assert set(READ_ELSEWHERE) - set(unused) == set()


# Files of tests that begin with no module's, folder's or command's name, by what each is about instead.
OF_SEVERAL = {
    "the installed program as a whole, by what a person does with it": """
        installed/test_few_open_files installed/test_kept_runs installed/test_loaded_modules
        installed/test_odd_terminals installed/test_painting installed/test_printed_commands installed/test_slurmd
        installed/test_sshd installed/test_two_distributions installed/test_wheel""",
    "every screen": "app/test_every_screen app/test_old_values app/test_pictures app/test_resizing",
    "every command": """
        cli/test_impossible_workloads cli/test_narrow_tables cli/test_one_verdict cli/test_wrong_input""",
    "every way to ask for one figure": "estimators/test_one_answer",
    "every source": """
        sources/test_contract sources/test_edge_cases sources/test_impossible_figures sources/test_second_user""",
    "a command of the tests themselves: python -m tests.NAME": """
        articles/test_articles crashes/test_crashes faults/test_faults faults/test_generated test_fuzz""",
    "the whole package, or the files around it": """
        test_current_folder test_docs test_hostile_inputs test_house_rules test_house_shape
        test_import_circles test_imports test_outside_values test_project_files test_public_scripts
        test_words test_worked_examples""",
}


def test_a_file_of_tests_is_named_after_what_it_tests() -> None:
    """So that what tests a module is found by its name: `test_grouped_rows.py`, `test_plan_maps.py`."""
    names = {part for path in files() for part in (Path(path).stem, Path(path).parent.name)}
    names |= {path.stem for path in (ROOT / "benchmarks").glob("*.py")}  # commands as well

    def is_named(path: Path) -> bool:
        words = path.stem.split("_")[1:]
        begins = {"_".join(words[:count]) for count in range(1, len(words) + 1)}
        return bool({form for word in begins for form in (word, f"{word}s", word.removesuffix("s"))} & names)

    others = {
        path.relative_to(ROOT / "tests").with_suffix("").as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if not is_named(path)
    }
    listed = {name for names in OF_SEVERAL.values() for name in names.split()}
    assert others - listed == set()
    assert listed - others == set()


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


@pytest.mark.parametrize("words", [LARGE, SINGLE, TWICE, OF_ONE_KIND, READ_ELSEWHERE])
def test_every_exception_has_its_reason(words: dict[str, str]) -> None:
    assert all(len(reason) > 8 for reason in words.values())


# Tables by a closed set of words that leave some out, each with the reason.
PARTIAL = {
    "STATE_MARKS": "a process that runs or sleeps has no mark",
    "_USES": "one of both types is on both lists",
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


TABLE = re.compile(r"(?:dict|Mapping)\[\w+, [^\n]*\] = \{")  # where a file has none it need not be parsed


def test_a_table_by_a_closed_set_of_words_has_all_of_them() -> None:
    """So that no word that is added is forgotten anywhere: a wrong one is a type error, a missing one fails here."""
    sets, partial = word_sets(), {}
    for path in (ROOT / "vramtui").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if TABLE.search(text) else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
                typed = re.match(r"(?:Final\[)?(?:dict|Mapping)\[(\w+), ", ast.unparse(node.annotation))
                keys = {part.value for part in node.value.keys if isinstance(part, ast.Constant)}
                words = sets.get(typed[1], frozenset()) if typed is not None else frozenset()
                if keys and words - keys and None not in node.value.keys:
                    partial[names_of(node)[0]] = f"{path}: {sorted(words - keys)}"
    assert len(sets) > 30
    assert {name: where for name, where in partial.items() if name not in PARTIAL} == {}
    assert set(PARTIAL) - set(partial) == set()
