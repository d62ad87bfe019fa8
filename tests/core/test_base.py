"""Values over time within bounds, and functions whose modules are loaded when they are first called."""

import sys

import pytest

from vramtui.core.base.curves import Curve
from vramtui.core.base.late import late

MODULE = "wave"  # of the standard library, and of no use here


def test_only_changes_are_kept() -> None:
    curve = Curve(2)
    for at, point in enumerate([(1, 2), (1, 2), (1, 3), (1, 3), (0, 0)]):
        curve.add(float(at), point)
    assert list(curve.times) == [0.0, 2.0, 4.0]
    assert [list(series) for series in curve.values] == [[1, 1, 0], [2, 3, 0]]


def test_the_largest_is_never_lost() -> None:
    curve = Curve()
    for at in range(1000):
        curve.add(float(at), (999 if at == 411 else at % 7,), limit=50)
    assert len(curve.times) <= 50
    assert max(curve.values[0]) == 999


def test_going_back_in_a_recording_forgets_what_comes_later() -> None:
    curve = Curve()
    for at in range(10):
        curve.add(float(at), (at,))
    curve.add(4.0, (44,))
    assert list(curve.times) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert list(curve.values[0]) == [0, 1, 2, 3, 44]


def test_a_module_is_loaded_by_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    function = late(f"{MODULE}:open")
    assert MODULE not in sys.modules
    with pytest.raises(FileNotFoundError):
        function("/nowhere/at/all.wav", "rb")
    assert MODULE in sys.modules
