"""Loaded by Python at its start if `vramtui run` put this folder in PYTHONPATH: arms the probe, then steps aside.

Any Python may come by here, one too old for the probe as well; and the site's own sitecustomize, which this one hides,
is loaded as if this one were not there.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))

if sys.version_info >= (3, 8):  # noqa: UP036 - the Python here is the job's
    try:
        from importlib.machinery import ModuleSpec, SourceFileLoader

        _folder = os.path.dirname(_here)
        _file = _folder + os.sep + "__init__.py"
        # By hand, because importlib.util takes longer to load than all of this, and the package must not be found
        # by its own name: the job may have a vramtui of another version, or none.
        _spec = ModuleSpec("_vramtui_probe", SourceFileLoader("_vramtui_probe", _file), origin=_file, is_package=True)
        _spec.submodule_search_locations = [_folder]
        _spec.has_location = True
        _probe = type(sys)("_vramtui_probe", None)
        _probe.__spec__ = _spec
        _probe.__loader__ = _spec.loader
        _probe.__file__ = _file
        _probe.__path__ = [_folder]
        _probe.__package__ = "_vramtui_probe"
        sys.modules["_vramtui_probe"] = _probe
        _spec.loader.exec_module(_probe)  # type: ignore[union-attr]  # it was set above
        _probe.start()
    except Exception:
        sys.modules.pop("_vramtui_probe", None)

# Only this process steps aside: its children find the folder in PYTHONPATH again.
sys.path[:] = [_entry for _entry in sys.path if os.path.abspath(_entry) != _here]
if __name__ == "sitecustomize":
    del sys.modules["sitecustomize"]
    # The site's own, or the ImportError that there is without one.
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - loading it is all
