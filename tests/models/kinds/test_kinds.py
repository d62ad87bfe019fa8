"""The kinds of modules: a file each, under one name in the folders that answer for them."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import get_args

from vramtui.estimators.analytic import ops
from vramtui.estimators.analytic.models.decoder import RECORDERS
from vramtui.models import kinds
from vramtui.models.spec import Kind, Module

KINDS = get_args(Kind)


def _names(package: ModuleType) -> set[str]:
    return {path.stem for path in Path(package.__path__[0]).glob("*.py")} - {"__init__"}


def _class(kind: str) -> type[Module]:
    there = vars(import_module(f"{kinds.__name__}.{kind}")).values()
    return next(
        one for one in there if isinstance(one, type) and issubclass(one, Module) and one.__module__.endswith(kind)
    )


def test_a_kind_is_a_file_and_the_class_in_it() -> None:
    assert _names(kinds) == set(KINDS)
    assert all(_class(kind).kind == kind for kind in KINDS)


def test_what_is_made_of_other_modules_is_recorded_in_a_file_of_the_same_name() -> None:
    made_of_others = {kind for kind in KINDS if _class(kind).parts is not Module.parts}
    assert set(RECORDERS) == made_of_others
    assert made_of_others <= _names(ops)
    assert {kind: record.__module__ for kind, record in RECORDERS.items()} == {
        kind: f"{ops.__name__}.{kind}" for kind in made_of_others
    }
