"""What stays real on the host while a trace runs: weights read from files, whatever their size; what a default device
of the code's own must not reach.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced
from tests.loaded_once import Module

numpy, torch = Module("numpy"), Module("torch")

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]
COPIED = """
    import copy, sys
    import torch
    places = int(sys.argv[1])
    weights = torch.load("weights.pt")
    copied = copy.deepcopy(weights)
    assert type(copied["w"]) is type(weights["w"]) and copied["w"].data_ptr() != weights["w"].data_ptr()
    assert copied["w"].shape == (places,) and copied["w"][0] == weights["w"][0] and not copied["w"].is_cuda
    assert weights["w"].new_zeros(3).tolist() == [0, 0, 0] and weights["w"].new_full((), 7.0).item() == 7
    copied["w"].cuda()
"""
READ = """
    import numpy, torch
    {default}
    for places in (1, 65, 1_025, 70_000):
        x = torch.nn.Linear(4, places)(torch.randn(2, 4))
        assert x.is_cuda and x.detach().cpu().numpy().shape == (2, places), places
        assert numpy.asarray(x.detach().cpu()).shape == (2, places) and "tensor" in str(x), places
        assert x.tolist() == x.detach().cpu().numpy().tolist(), places
        assert x.sum().item() == x.sum().item(), places
        assert torch.from_numpy(numpy.zeros(3)).device.type == "cpu", places
        x.sum().backward()
"""


@pytest.mark.parametrize("places", [1, 1_025, (1 << 22) + 1])
def test_weights_from_a_file_are_copied_whatever_their_size(tmp_path: Path, places: int) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.rand(places)}, tmp_path / "weights.pt")
    script = COPIED.replace('"weights.pt"', repr(str(tmp_path / "weights.pt")))
    assert traced(tmp_path, script, None, str(places)).peak_allocated >= 4 * places


@pytest.mark.parametrize(
    "default", ['torch.set_default_tensor_type("torch.cuda.FloatTensor")', 'torch.set_default_device("cuda")']
)
def test_values_are_read_under_a_default_device_of_the_codes_own(tmp_path: Path, default: str) -> None:
    traced(tmp_path, READ.format(default=default), steps=9)  # more than it has


# What draws a size after a seed, and the same draw from a generator of its own.
DRAWS: dict[str, tuple[str, Callable[[int], int]]] = {
    "randint": (
        "torch.manual_seed(seed); size = torch.randint(1, 1000, ()).item()",
        lambda seed: int(torch.randint(1, 1000, (), generator=torch.Generator().manual_seed(seed))),
    ),
    "randperm": (
        "torch.manual_seed(seed); size = 1 + torch.randperm(1000)[0].item()",
        lambda seed: 1 + int(torch.randperm(1000, generator=torch.Generator().manual_seed(seed))[0]),
    ),
    "a mask's places": (
        "torch.manual_seed(seed); size = 1 + len((torch.rand(1000) < 0.3).nonzero())",
        lambda seed: 1 + int((torch.rand(1000, generator=torch.Generator().manual_seed(seed)) < 0.3).sum()),
    ),
    "random": (
        "random.seed(seed); size = random.randrange(1, 1000)",
        lambda seed: random.Random(seed).randrange(1, 1000),
    ),
    "NumPy": (
        "numpy.random.seed(seed); size = int(numpy.random.randint(1, 1000))",
        lambda seed: int(numpy.random.RandomState(seed).randint(1, 1000)),
    ),
}


@pytest.mark.parametrize("seed", [0, 1234])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_size_that_is_drawn_follows_its_seed(tmp_path: Path, draw: str, seed: int) -> None:
    line, alone = DRAWS[draw]
    taken = "kept = torch.empty(size, 1 << 21, dtype=torch.uint8, device='cuda')"  # whole segments of the allocator
    result = traced(tmp_path, f"import random, numpy, torch\nseed = {seed}\n{line}\n{taken}")
    assert result.peak_allocated == alone(seed) << 21
    assert not result.bounded


DRAWN_ON_THE_CARD = """
    import sys
    import torch
    seed = int(sys.argv[1])
    {seeded}
    size = torch.randint(1, 1000, (), device="cuda").item()
    kept = torch.empty(size, 1 << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.parametrize(
    "seeded", ["torch.manual_seed(seed)", "torch.manual_seed(seed); torch.cuda.manual_seed_all(seed)"]
)
def test_a_size_that_is_drawn_on_the_card_is_the_same_for_one_seed(tmp_path: Path, seeded: str) -> None:
    """By the host's generator, whose numbers are others than the card's."""
    text = DRAWN_ON_THE_CARD.format(seeded=seeded)
    sizes = [traced(tmp_path, text, None, seed).peak_allocated for seed in ("0", "0", "1")]
    assert sizes[0] == sizes[1] != sizes[2]


LABELS = """
    import sys
    import numpy, torch
    rows = int(sys.argv[1])
    image = numpy.arange(rows) * 4 // rows
    image[: rows // 2] = 0
    labels = torch.from_numpy(numpy.stack([image, *numpy.random.rand(5, rows)], 1)).float().cuda()
    of = labels[:, 0]
    _, counts = of.unique(return_counts=True)
    boxes = torch.zeros(4, counts.max(), 5, device="cuda")
    for at in range(4):
        matches = of == at
        boxes[at, : matches.sum()] = labels[matches, 1:]
    kept = torch.empty(int(counts.max()), 1 << 21, dtype=torch.uint8, device="cuda")  # whole segments
"""


@pytest.mark.parametrize("rows", [8, 168, 352, 2728])
def test_labels_beside_boxes_are_known_on_the_card(tmp_path: Path, rows: int) -> None:
    """As many as the pictures of a batch hold: those of COCO have seven each, and dense ones a hundred."""
    result = traced(tmp_path, LABELS, None, str(rows))
    assert result.peak_allocated >> 21 == rows // 2
    assert not result.bounded
