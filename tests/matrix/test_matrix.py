import os
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory

import pytest

from tests.dryrun.test_shielded_jobs import SYSTEM, open_folder
from tests.matrix.cells import CELLS, Machine, sampled


@pytest.mark.skipif(not SYSTEM.exists(), reason="another Python is needed")
def test_jobs_behave_as_the_bare_ones() -> None:
    assert len(CELLS) >= 400
    cells = sampled([cell for cell in CELLS if cell.build == "no-torch"], 20)
    with TemporaryDirectory(prefix="vt", dir=open_folder()) as folder, ThreadPoolExecutor() as threads:
        results = dict(zip(cells, threads.map(Machine(folder).differences, cells), strict=True))
    assert not {cell.name: differences for cell, differences in results.items() if differences}
    assert os.geteuid() or None not in results.values()
