"""The kinds of modules: a class each, and a recorder for each that is made of others."""

from typing import get_args

from vramtui.estimators.analytic.models.decoder import RECORDERS
from vramtui.models import kinds
from vramtui.models.spec import Kind, Module


def test_a_kind_has_one_class_and_what_is_made_of_others_is_recorded() -> None:
    own = [one for one in vars(kinds).values() if isinstance(one, type) and one.__module__ == kinds.__name__]
    classes = {one.kind: one for one in own if issubclass(one, Module)}
    assert set(classes) == set(get_args(Kind))
    assert set(RECORDERS) == {kind for kind, one in classes.items() if one.parts is not Module.parts}
