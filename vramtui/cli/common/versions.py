"""Which programs and drivers stand behind a figure."""

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from vramtui import __version__
from vramtui.core.observation.readings import Sample


def versions(sample: Sample) -> dict[str, str]:
    """Names and versions of what took part in reading `sample`; what is not there is left out."""
    versions_by_name = {"vramtui": __version__, "python": platform.python_version()}
    for package in ("nvidia-ml-py", "torch", "transformers"):
        with suppress(PackageNotFoundError):
            versions_by_name[package] = version(package)
    if sample.host.driver_version:
        versions_by_name["driver"] = sample.host.driver_version
    if sample.host.cuda_version:
        versions_by_name["cuda"] = sample.host.cuda_version
    return versions_by_name
