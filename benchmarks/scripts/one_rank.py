"""Run SCRIPT as rank 0 of WORLD_SIZE over torch's fake process group: `python one_rank.py SCRIPT ARGUMENTS`.

The truth of a distributed script where there is no NCCL: collectives do nothing, and their buffers are all there.
"""

import os
import runpy
import sys
from pathlib import Path

import torch.distributed
from torch.distributed import device_mesh, distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore


def main() -> None:
    """Replace how process groups are made, then run the script as it is."""
    plain = distributed_c10d.init_process_group

    def init_process_group(*_args: object, **_kwargs: object) -> None:
        plain(backend="fake", rank=0, world_size=int(os.environ["WORLD_SIZE"]), store=FakeStore())

    torch.distributed.init_process_group = init_process_group
    distributed_c10d.init_process_group = init_process_group
    vars(device_mesh)["init_process_group"] = init_process_group  # it has taken the function under its name
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
