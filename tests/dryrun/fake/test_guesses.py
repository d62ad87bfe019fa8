"""Places, counts and loops that hang on values nobody has: code that relies on a sane answer goes on at every size."""

from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]
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
    "until it is small": "while x.norm().item() > 1e-3: x = x * 0.5",
    "until a condition holds": "while (x.norm() / 3 - 1).abs() > 1e-9: x = x * 0.5",
    "left by a condition": """
    while True:
        x = x * 0.5
        if x.norm() < 1e-3:
            break
    """,
    "until it is large": "while x.norm().item() < 10: x = x * 2",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_waits_for_a_value_ends_and_says_so(tmp_path: Path, loop: str) -> None:
    result = traced(tmp_path, f"{BEGIN}\n    {LOOPS[loop].strip()}\n", None, "65")
    assert sum("it was ended after some 64 rounds" in note for note in result.warnings) == 1


def test_a_loop_that_is_no_loop_of_values_goes_on(tmp_path: Path) -> None:
    code = """
    rounds = 0
    while rounds < 200:
        assert x.norm().item() > 0          # decides nothing about the loop
        rounds += 1
    """
    result = traced(tmp_path, BEGIN + code, None, "65")
    assert not [note for note in result.warnings if "ended after" in note]


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
    with pytest.raises(Exception, match="for which a constant stood"):
        traced(tmp_path, BEGIN + code, None, "65")
