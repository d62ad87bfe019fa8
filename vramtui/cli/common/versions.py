"""Which programs and drivers stand behind a figure."""

import platform
from importlib.metadata import PackageNotFoundError, version

from vramtui import __version__
from vramtui.core.observation.readings import Sample

_LIBRARIES = ("nvidia-ml-py", "torch", "transformers")


def versions(sample: Sample) -> dict[str, str]:
    """Names and versions of what took part in reading `sample`; what is not there is left out."""
    found = {"vramtui": __version__, "python": platform.python_version()}
    found |= {package: known for package in _LIBRARIES if (known := _version(package))}
    if sample.host.driver_version:
        found["driver"] = sample.host.driver_version
    if sample.host.cuda_version:
        found["cuda"] = sample.host.cuda_version
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
