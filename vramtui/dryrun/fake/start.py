"""Runs one module of this program in a Python that has torch and nothing of ours: `PYTHON start.py MODULE ARGS...`.

The package is loaded from where this file lies, under its own name and from no search path, so that the code to be
traced finds what it finds under its own Python and nothing else of the environment that vramtui lives in. The package
needs only torch and msgspec. msgspec is compiled for one Python: if this one has none, a few lines stand in for it.
Only the standard library is imported here.
"""

import dataclasses
import importlib.util
import json
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

PACKAGE = Path(__file__).parents[2]


class Struct:
    """Stand in for `msgspec.Struct`: a dataclass with its options, that checks nothing."""

    _frozen = _kw_only = False

    def __init_subclass__(
        cls, *, frozen: bool | None = None, kw_only: bool | None = None, **_of_documents: Any
    ) -> None:
        cls._frozen = cls._frozen if frozen is None else frozen
        cls._kw_only = cls._kw_only if kw_only is None else kw_only
        for name, default in tuple(vars(cls).items()):
            if isinstance(default, (dict, list, set)) and not name.startswith("__"):
                setattr(cls, name, dataclasses.field(default_factory=default.copy))
        dataclasses.dataclass(frozen=cls._frozen, kw_only=cls._kw_only)(cls)


class Meta:
    """Bounds of a field, which stand in types and are checked by whoever asks for a trace."""

    def __init__(self, **_bounds: Any) -> None:
        pass


def main() -> None:
    """Run a module as `python -m MODULE ARGS...` does, with no folder in front of the search path."""
    here = str(Path(__file__).parent)
    sys.path[:] = [folder for folder in sys.path if folder != here]
    del sys.argv[0]
    spec = importlib.util.spec_from_file_location("vramtui", PACKAGE / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["vramtui"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["vramtui"])
    if importlib.util.find_spec("msgspec") is None:
        module: Any = ModuleType("msgspec", "Stands in for msgspec in a process that traces.")
        module.Struct, module.Meta = Struct, Meta
        module.structs = SimpleNamespace(replace=dataclasses.replace)
        module.json = SimpleNamespace(encode=lambda value: json.dumps(value, default=vars).encode())
        sys.modules["msgspec"] = module
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
