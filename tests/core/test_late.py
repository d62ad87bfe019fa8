"""Functions whose modules are loaded when they are first called."""

import sys

import pytest

from vramtui.core.base.late import late

MODULE = "wave"  # of the standard library, and of no use here


def test_a_module_is_loaded_by_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    function = late(f"{MODULE}:open")
    assert MODULE not in sys.modules
    with pytest.raises(FileNotFoundError):
        function("/nowhere/at/all.wav", "rb")
    assert MODULE in sys.modules
