"""Which programs and drivers stand behind a figure."""

import platform
from importlib.metadata import PackageNotFoundError, version

from vramtui import __version__
from vramtui.core.observation.readings import Sample

_LIBRARIES = ("nvidia-ml-py", "torch", "transformers")


def versions(sample: Sample) -> dict[str, str]:
    """Names and versions of what took part in reading `sample`; what is not there is left out."""
    versions_by_name = {"vramtui": __version__, "python": platform.python_version()}
    versions_by_name |= {package: known for package in _LIBRARIES if (known := _version(package))}
    if sample.host.driver_version:
        versions_by_name["driver"] = sample.host.driver_version
    if sample.host.cuda_version:
        versions_by_name["cuda"] = sample.host.cuda_version
    return versions_by_name


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
