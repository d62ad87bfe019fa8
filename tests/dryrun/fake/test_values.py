"""Conditions over values that nobody has: a healthy job's answer at every size, and no constant taken for a guess."""

from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced

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


@pytest.mark.parametrize("places", PLACES)
def test_a_condition_over_data_holds_at_every_size(tmp_path: Path, places: int) -> None:
    traced(tmp_path, CONDITIONS.format(rest=""), None, str(places))


@pytest.mark.parametrize("places", PLACES[1:])
def test_both_of_two_conditions_hold(tmp_path: Path, places: int) -> None:
    traced(tmp_path, CONDITIONS.format(rest="assert ((x >= 0) & (x <= 1)).all(-1).all()"), None, str(places))


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


def test_a_loop_that_waits_for_a_token_goes_on(tmp_path: Path) -> None:
    """Tokens are taken for zeros, of which none is the one that ends a text: the longest text is the bound."""
    result = traced(
        tmp_path,
        """
        import torch
        kept = []
        for _ in range(5):
            drawn = torch.multinomial(torch.rand(70, 9, device="cuda").softmax(-1), 1)
            kept.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
            if (drawn == 3).all():
                break
        """,
    )
    assert result.peak_allocated >= 5 << 20


@pytest.mark.parametrize("kind", ["new_zeros((6,), dtype=torch.bool)", "new_full((6,), False, dtype=torch.bool)"])
def test_a_mask_made_beside_a_weight_is_known(tmp_path: Path, kind: str) -> None:
    result = traced(
        tmp_path,
        f"""
        import torch
        mask = torch.nn.Linear(4, 6).weight.{kind}.view(3, -1)
        mask[[True, False, True], :] = True
        rows = torch.nn.Parameter(torch.randn(4, 1024, device="cuda"))
        out = rows.new_zeros(6, 1024)
        out[mask.view(-1)] = rows
        out.square().sum().backward()
        """,
    )
    assert not result.bounded


def test_a_mask_that_nobody_knows_has_as_many_places_as_are_written_through_it(tmp_path: Path) -> None:
    traced(
        tmp_path,
        """
        import torch
        mask = torch.randn(6, device="cuda") > 0
        rows = torch.nn.Parameter(torch.randn(4, 1024, device="cuda"))
        out = rows.new_zeros(6, 1024)
        out[mask] = rows
        out.square().sum().backward()
        """,
    )


@pytest.mark.parametrize("side", [1, 9, 65, 100])
def test_a_mask_of_bytes_is_a_mask_whether_its_values_are_known_or_not(tmp_path: Path, side: int) -> None:
    result = traced(
        tmp_path,
        """
        import sys
        import torch
        side = int(sys.argv[1])
        image = torch.randn(2, 3, side, side, device="cuda", requires_grad=True)
        drawn = (torch.randn(2, side, side, device="cuda") > 0).byte().unsqueeze(1).repeat(1, 3, 1, 1)
        made = image[drawn]
        assert made.shape == (2 * 3 * side * side,)  # at its bound
        made.sum().backward()
        image.detach()[drawn] = 0.0
        known = torch.zeros(2, side, side, dtype=torch.uint8)
        known[:, 0] = 1
        assert image[known.cuda().unsqueeze(1).repeat(1, 3, 1, 1)].shape == (2 * 3 * side,)
        """,
        None,
        str(side),
    )
    assert result.bounded


@pytest.mark.parametrize("places", [1, 65, 1_025, 70_000])
def test_bytes_are_conditions_of_where(tmp_path: Path, places: int) -> None:
    """A copy of them as conditions is there beside the result, as on the CUDA build."""
    traced(
        tmp_path,
        """
        import sys
        import torch
        count = int(sys.argv[1])
        chosen = (torch.randn(count, device="cuda") > 0).to(torch.uint8)
        other, before = torch.ones(count, device="cuda"), torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        found = torch.where(chosen, other, 2 * other[:1])
        assert found.shape == (count,) and found.dtype is torch.float32
        rounded = -(-count // 512) * 512
        assert torch.cuda.max_memory_allocated() - before >= rounded + -(-4 * count // 512) * 512
        """,
        None,
        str(places),
    )
