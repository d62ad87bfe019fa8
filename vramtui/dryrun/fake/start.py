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


class Struct:
    """Stand in for `msgspec.Struct`: a dataclass with its options, that checks nothing."""

    def __init_subclass__(cls, *, kw_only: bool = False, **_of_documents: Any) -> None:
        for name, default in tuple(vars(cls).items()):
            if isinstance(default, (dict, list, set)) and not name.startswith("__"):
                setattr(cls, name, dataclasses.field(default_factory=default.copy))
        dataclasses.dataclass(kw_only=kw_only, unsafe_hash=True)(cls)


def main() -> None:
    """Run a module as `python -m MODULE ARGS...` does, with no folder in front of the search path."""
    here = Path(__file__).parent
    sys.path[:] = [folder for folder in sys.path if folder != str(here)]
    del sys.argv[0]
    spec = importlib.util.spec_from_file_location("vramtui", here.parents[1] / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["vramtui"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["vramtui"])
    if importlib.util.find_spec("msgspec") is None:
        module: Any = ModuleType("msgspec", "Stands in for msgspec in a process that traces.")
        module.Struct, module.Meta = Struct, lambda **_bounds: None  # who asks for a trace checks them
        module.structs = SimpleNamespace(replace=dataclasses.replace)
        module.json = SimpleNamespace(encode=lambda value: json.dumps(value, default=vars).encode())
        sys.modules["msgspec"] = module
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
