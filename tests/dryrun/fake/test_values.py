"""Values of fake tensors: known ones are computed, unknown ones are guessed as in a healthy job and noted."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced
from tests.dryrun.test_cuda_values import BEFORE, HEALTHY, JOBS, MIB, READS, SIZES, START
from tests.loaded_once import Module

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]

# Below and above what is carried of fractions that follow from data, of known ones, and of integers and conditions.
PLACES = (1, 65, 1_025, 70_000)
CONDITIONS = """
    import sys
    import torch
    places = int(sys.argv[1])
    x = torch.nn.Linear(4, places).cuda()(torch.randn(1, 4, device="cuda"))
    assert (x.exp() >= 0).all() and torch.isfinite(x).all() and not torch.isnan(x).any()
    assert torch._is_all_true(x == x) and ((x >= 0) | (x <= 1)).all(-1).all()
    assert torch.equal(x, x * 1) and torch.allclose(x, x)
    {rest}
"""


@pytest.mark.parametrize("rest", ["", "assert ((x >= 0) & (x <= 1)).all(-1).all()"])
@pytest.mark.parametrize("places", PLACES[1:])
def test_conditions_over_data_hold_at_every_size(tmp_path: Path, places: int, rest: str) -> None:
    traced(tmp_path, CONDITIONS.format(rest=rest), None, str(places))


@pytest.mark.parametrize("places", PLACES)
def test_distributions_take_their_parameters_at_every_size(tmp_path: Path, places: int) -> None:
    rest = """
    for made in (
        torch.distributions.Categorical(logits=x), torch.distributions.Categorical(probs=x.softmax(-1)),
        torch.distributions.Normal(x, x.exp()), torch.distributions.Bernoulli(logits=x),
        torch.distributions.Beta(x.exp(), x.exp()), torch.distributions.Dirichlet(x.exp()),
    ):
        made.log_prob(made.sample()).sum().backward(retain_graph=True)
    """
    traced(tmp_path, CONDITIONS.format(rest=rest), None, str(places))


# Two ends of a text, and its MiB: a token that is never drawn, as all are zeros; and a mask that takes all rows.
ENDS = {
    "if (drawn == 3).all():\n                break": 5,
    "if left <= len(drawn[drawn[:, 0] > 3]):\n                break": 1,
}


@pytest.mark.parametrize("end", ENDS)
def test_the_longest_text_is_the_bound(tmp_path: Path, end: str) -> None:
    code = f"""
        import torch
        kept, left = [], 70
        for _ in range(5):
            drawn = torch.multinomial(torch.rand(70, 9, device="cuda").softmax(-1), 1)
            kept.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
            {end}
        """
    result = traced(tmp_path, code)
    assert result.peak_allocated >> 20 == ENDS[end]
    assert ENDS[end] == 5 or any("5.00 MiB allocated at the peak with empty masks" in one for one in result.warnings)


MASK = "torch.nn.Linear(4, 6).weight.{}.view(3, -1)\n    mask[[True, False, True], :] = True"
MASKS = [MASK.format(one) for one in ("new_zeros((6,), dtype=torch.bool)", "new_full((6,), False, dtype=torch.bool)")]
WRITTEN = """
    import torch
    mask = {mask}
    rows = torch.nn.Parameter(torch.randn(4, 1024, device="cuda"))
    out = rows.new_zeros(6, 1024)
    out[mask.view(-1)] = rows
    out.square().sum().backward()
"""


@pytest.mark.parametrize("mask", [*MASKS, "torch.randn(6, device='cuda') > 0"])
def test_a_mask_has_as_many_places_as_are_written_through_it(tmp_path: Path, mask: str) -> None:
    assert not traced(tmp_path, WRITTEN.format(mask=mask)).bounded or mask not in MASKS


MASK_OF_BYTES = """
    image = torch.randn(2, 3, count, count, device="cuda", requires_grad=True)
    drawn = (torch.randn(2, count, count, device="cuda") > 0).byte().unsqueeze(1).repeat(1, 3, 1, 1)
    made = image[drawn]
    assert made.shape == (2 * 3 * count * count,)  # at its bound
    made.sum().backward()
    image.detach()[drawn] = 0.0
    known = torch.zeros(2, count, count, dtype=torch.uint8)
    known[:, 0] = 1
    assert image[known.cuda().unsqueeze(1).repeat(1, 3, 1, 1)].shape == (2 * 3 * count,)
"""
BYTES_OF_WHERE = """
    chosen = (torch.randn(count, device="cuda") > 0).to(torch.uint8)
    other, before = torch.ones(count, device="cuda"), torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = torch.where(chosen, other, 2 * other[:1])
    assert found.shape == (count,) and found.dtype is torch.float32
    # a copy of them as conditions is there beside the result, as on the CUDA build
    rounded = -(-count // 512) * 512
    assert torch.cuda.max_memory_allocated() - before >= rounded + -(-4 * count // 512) * 512
"""

MARKED = """
    rows, mask = torch.randn(count, 1 << 20, device="cuda"), torch.zeros(count, dtype=torch.bool).cuda()
    mask[torch.rand(count, device="cuda").topk(5).indices] = True
    assert rows[mask].shape[0] == rows[:, 0][mask].shape[0] == 5  # of tensors that are not followed, and that are
"""


@pytest.mark.parametrize(
    ("code", "count"),
    [
        (MARKED, 9),
        (MARKED, 700),
        *((MASK_OF_BYTES, side) for side in (1, 9, 65, 100)),
        *((BYTES_OF_WHERE, one) for one in (1, 65, 1_025, 70_000)),
    ],
)
def test_a_mask_of_bytes_is_a_mask(tmp_path: Path, code: str, count: int) -> None:
    result = traced(tmp_path, f"    import torch\n    count = {count}{code}")
    assert result.bounded or code is BYTES_OF_WHERE


# Below and above what is carried of fractions that follow from data.
ROWS = (2, 65, 1_025)
BEGIN = """
    import sys
    import torch
    rows, classes = int(sys.argv[1]), 8
    layer = torch.nn.Linear(4, classes).cuda()
    x = layer(torch.randn(rows, 4, device="cuda"))
"""


@pytest.mark.parametrize("rows", ROWS)
def test_places_and_counts_are_sane(tmp_path: Path, rows: int) -> None:
    code = """
    graphs = torch.arange(rows, device="cuda") // 2
    order = x[:, 0].sort(descending=True)[1]
    assert graphs[order].max().item() == (rows - 1) // 2                 # what is put in order keeps its parts
    assert x[:, 0].topk(2).indices.tolist() == [0, 1] or rows <= 65
    answers = x.argmax(1)
    assert len(torch.unique(answers)) <= classes and len(answers.bincount()) <= classes
    assert len(torch.unique(torch.randint(0, 3, (rows, 40), device="cuda").flatten())) <= 3
    held = layer(torch.randn(rows, 4, device="cuda")) > 0
    assert 1 / held.sum().item() > 0                                     # as many are counted as there are places
    assert sum(held.sum(1).tolist()) == held.sum().item() == held.long().sum().item()
    torch.split(x[held], held.sum(1).tolist())
    big = layer(torch.randn(40 * rows, 4, device="cuda"))
    assert torch.isnan(big).sum().item() == (~torch.isfinite(big)).sum().item() == (big != big).sum().item() == 0
    assert len(big[~torch.isnan(big).any(1)]) == len(big)
    """
    traced(tmp_path, BEGIN + code, None, str(rows))


LOOPS = {
    "while x.norm().item() > 1e-3: x = x * 0.5": 1,
    "while (x.norm() / 3 - 1).abs() > 1e-9: x = x * 0.5": 1,
    "while True:\n        x = x * 0.5\n        if x.norm() < 1e-3:\n            break": 1,
    "while x.norm().item() < 10: x = x * 2": 1,
    "rounds = 0\n    while rounds < 200:\n        assert x.norm().item() > 0\n        rounds += 1": 0,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_waits_for_a_value_ends_and_says_so(tmp_path: Path, loop: str) -> None:
    result = traced(tmp_path, f"{BEGIN}\n    {loop}\n", None, "65")
    assert sum("it was ended after some 64 rounds" in note for note in result.warnings) == LOOPS[loop]


def test_a_call_with_a_loop_of_values_gives_back_what_it_held(tmp_path: Path) -> None:
    code = """
    def solve(x):
        large = torch.empty(1 << 24, device="cuda")
        while x.norm().item() > 1e-3:
            x = x * 0.5
        return large.numel()
    for _ in range(3):
        solve(x)
        y = x + 1
        assert torch.cuda.memory_allocated() < 1 << 24
    def halves(x):
        while x.norm().item() > 1e-3:
            x = x * 0.5
            yield x
    assert sum(1 for _ in zip(range(5), halves(x))) == 5
    """
    traced(tmp_path, BEGIN + code, None, "65")


def test_a_division_by_a_count_from_another_function_is_no_fault_of_the_code(tmp_path: Path) -> None:
    code = """
    count = (x.argmax(1) * 0).sum().item()
    print([part / count for part in (1, 2)])
    """
    with pytest.raises(Exception, match="which was replaced by a constant"):
        traced(tmp_path, BEGIN + code, None, "65")


numpy, torch = Module("numpy"), Module("torch")

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


def own(seed: int) -> object:
    return torch.Generator().manual_seed(seed)


def after_weights(seed: int) -> int:
    drawn = own(seed)
    for shape in ((999, 3000), (999,)):
        torch.empty(shape).uniform_(generator=drawn)
    torch.randn(1 << 20, generator=drawn)
    return int(torch.randint(1, 999, (), generator=drawn))


LINEAR = "(torch.nn.Linear(3000, 999), torch.randn(1 << 20), torch.randint(1, 999, ()).item())[-1]"
# What draws a size after a seed, and the same draw from a generator of its own.
DRAWS: dict[str, tuple[str, Callable[[int], int]]] = {
    "randint": ("torch.randint(1, 999, ()).item()", lambda seed: torch.randint(1, 999, (), generator=own(seed))),
    "randperm": ("torch.randperm(999)[0].item() + 1", lambda seed: torch.randperm(999, generator=own(seed))[0] + 1),
    "after weights": (LINEAR, after_weights),
    "places": ("len((torch.rand(99) < .3).nonzero())", lambda seed: (torch.rand(99, generator=own(seed)) < 0.3).sum()),
    "random": ("random.randrange(1, 999)", lambda seed: random.Random(seed).randrange(1, 999)),
    "NumPy": ("int(numpy.random.randint(1, 999))", lambda seed: numpy.random.RandomState(seed).randint(1, 999)),
}  # fmt: skip
SEEDS = "torch.manual_seed(seed); random.seed(seed); numpy.random.seed(seed)"


@pytest.mark.parametrize("seed", [0, 1234])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_size_that_is_drawn_follows_its_seed(tmp_path: Path, draw: str, seed: int) -> None:
    line, alone = DRAWS[draw]
    taken = "kept = torch.empty(size, 1 << 21, dtype=torch.uint8, device='cuda')"  # whole segments of the allocator
    result = traced(tmp_path, f"import random, numpy, torch\nseed = {seed}\n{SEEDS}\nsize = {line}\n{taken}")
    assert result.peak_allocated == int(alone(seed)) << 21
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
    assert (result.peak_allocated >> 21, result.bounded) == (rows // 2, False)


@pytest.mark.parametrize("number", [1, 48])
@pytest.mark.parametrize("kind", JOBS)
def test_work_that_an_unknown_mask_guards_is_done_and_bounded(tmp_path: Path, kind: str, number: int) -> None:
    result = traced(tmp_path, BEFORE.format(number=number) + JOBS[kind])
    assert (result.peak_allocated >= number * MIB, result.bounded) == (True, True)
    assert any(sentence.startswith("bounded") or "loop" in sentence for sentence in result.warnings)


@pytest.mark.parametrize("number", [4, 22])
def test_checks_of_numbers_hold_and_are_not_bounded(tmp_path: Path, number: int) -> None:
    result = traced(tmp_path, HEALTHY.format(number=number))
    assert (result.peak_allocated < 256 * MIB, result.bounded) == (True, False)


@pytest.mark.parametrize("kind", SIZES)
def test_sizes_of_known_numbers_are_the_host_s(tmp_path: Path, kind: str) -> None:
    result = traced(tmp_path, "import torch\n" + SIZES[kind].format(n=3) + "torch.zeros(n, 1 << 18, device='cuda')\n")
    assert (abs(result.peak_allocated - 13 * MIB) <= 4 * MIB, result.bounded) == (True, False)


# What engine fake says it cannot follow, or bounds: compiled functions, kernels, tensors of tensors, masks in a log.
BEYOND = ("compiled", "copies in a list", "compiled for a log", "a kernel wrote", "below the peak for a log")


@pytest.mark.parametrize("number", [4, 48])
@pytest.mark.parametrize("kind", [kind for kind in READS if not kind.endswith(BEYOND)])
def test_a_size_that_follows_from_a_guess_is_bounded_and_a_log_is_not(tmp_path: Path, kind: str, number: int) -> None:
    result, is_bounded = traced(tmp_path, START.format(number=number) + READS[kind]), not kind.endswith("log")
    assert (result.bounded, any("script.py:" in note for note in result.warnings)) == (is_bounded, is_bounded)
