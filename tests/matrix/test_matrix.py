"""A sample of the matrix."""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.dryrun.test_shielded_jobs import SYSTEM
from tests.matrix.cells import CELLS, Machine, sampled

LEAST = 400


@pytest.mark.skipif(not SYSTEM.exists(), reason="another Python is needed")
@pytest.mark.parametrize("count", [20, pytest.param(160, marks=pytest.mark.slow)])
def test_jobs_behave_as_the_bare_ones(count: int) -> None:
    assert len(CELLS) >= LEAST
    cells = sampled([cell for cell in CELLS if cell.build == "no-torch"], count)
    with tempfile.TemporaryDirectory(prefix="vt") as folder, ThreadPoolExecutor(os.cpu_count()) as threads:
        found = zip(cells, threads.map(Machine(folder).differences, cells), strict=True)
        results = {cell.name: one for cell, one in found}
    assert not {name: differences for name, differences in results.items() if differences}
    assert os.geteuid() or None not in results.values()
