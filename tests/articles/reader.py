"""A reader of the articles: in the repository's folder, without presets or settings of their own, with torch loaded
once, and with a stand-in for nvidia-smi where no GPU is.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.stub.nvidia_smi import card, install
from vramtui.estimators.analytic.sizes import runtime
from vramtui.estimators.torch_facts.releases import NEWEST

ROOT = Path(__file__).parents[2]


@contextmanager
def quiet_reader(folder: Path) -> Iterator[None]:
    """Within it commands see nothing of whoever runs them; `folder` is for what they write."""
    from tests.warm_children import start_warm  # noqa: PLC0415 - starts a process that loads torch, once it is used

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VRAMTUI_CONFIG_DIR", str(folder / "config"))
        patch.setenv("VRAMTUI_DATA_DIR", str(folder / "data"))
        patch.setenv("VRAMTUI_STUB_SMI", str(folder / "smi.json"))
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        patch.chdir(ROOT)
        patch.setattr(runtime, "ASSUMED", NEWEST)  # as who types the commands; other tests hold another release
        stand_in = SimpleNamespace(Popen=start_warm, DEVNULL=subprocess.DEVNULL)
        patch.setattr("vramtui.dryrun.child.subprocess", stand_in)
        install(folder)
        process = f"{os.getpid()}, {card(0)['uuid']}, 900, python train.py"
        (folder / "smi.json").write_text(json.dumps({"gpus": [card(0)], "apps": [process]}))
        yield
