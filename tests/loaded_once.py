"""What takes long to load, loaded when a test first asks for it: every worker imports every file of tests."""

from functools import cache
from typing import Any

import pytest

from vramtui.core.schema.preset import PresetFile
from vramtui.presets import PresetLibrary, bundled_folder


@cache
def bundled_library() -> PresetLibrary:
    """The bundled presets without those of a user, each read once. Nothing is put into it."""
    return PresetLibrary(bundled_folder() / "nothing-of-a-user")


@cache
def bundled_presets() -> tuple[PresetFile, ...]:
    return bundled_library().all()


class Module:
    """A module that is imported when something of it is first used; a test that does is skipped where it is missing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks every name in a file of tests whether it is a test
            raise AttributeError(name)
        return getattr(pytest.importorskip(self._name), name)
