"""The emulated driver as the machine's compiler makes it, once for all tests and the commands that they start."""

from pathlib import Path

from vramtui.cli.common.settings import cache_dir
from vramtui.dryrun.cuda.build import build


def libraries() -> Path:
    return build(cache_dir())
