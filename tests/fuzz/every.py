"""All targets, the inputs that theirs are made of, and what was ever found of them."""

from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.fuzz.far import FAR_TARGETS, far_seeds
from tests.fuzz.files import FILE_TARGETS, file_seeds
from tests.fuzz.targets import TARGETS, seeds

EVERY = TARGETS | FAR_TARGETS | FILE_TARGETS
CORPUS = Path(__file__).parent / "corpus"  # a folder a target


def inputs_of(name: str) -> tuple[bytes, ...]:
    """Inputs of a target that are right."""
    return (file_seeds if name in FILE_TARGETS else far_seeds if name in FAR_TARGETS else seeds)(name)


def settings_of(number: settings) -> settings:
    """Other examples than last time, however long each takes."""
    return settings(number, database=None, suppress_health_check=list(HealthCheck), derandomize=False, deadline=None)
