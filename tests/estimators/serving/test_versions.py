"""vLLM's releases: what each profiles, and what it takes out of the share."""

import pytest

from tests.estimators.serving.models import LLAMA_8B
from tests.tables import for_each
from vramtui.core.estimate.devices import card
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.serving.vllm import Server


def server(version: str | None, length: int, device: str = "RTX3090", ranks: int = 1, **more: int) -> Server:
    run = ServeRun(max_model_len=length, engine_version=version, **more)  # type: ignore[arg-type] # numbers of a run
    return Server(LLAMA_8B, run, card(device), Parallel(tensor=ranks))


@for_each(
    [
        ("0.6.4", 8192, 8192, 256),
        ("v0.7.3.post1", 29_000, 29_000, 256),
        ("0.7.3", 40_960, 2048, 256),
        ("0.9.2", 8192, 2048, 256),
        (None, 8192, 2048, 256),
    ]
)
def test_a_pass_is_what_the_release_profiles(version: str | None, length: int, tokens: int, sequences: int) -> None:
    asked = server(version, length)
    assert (asked.tokens, asked.sequences) == (tokens, sequences)


def test_a_pass_holds_no_more_than_its_sequences() -> None:
    assert server(None, 512, "H100", max_num_seqs=2).tokens == 1024


@for_each([("0.6.4", 0.29), ("0.7.3", 0.028), ("0.9.0", 0.11), ("0.21", 0.11)])
def test_outside_torch_counts_from_where_the_release_looks(version: str, gib: float) -> None:
    assert server(version, 8192).worker.kernels / 2**30 == pytest.approx(gib, abs=0.1)


def test_graphs_lie_in_the_share_from_0_21_on() -> None:
    assert [server(version, 8192).worker.graphs_in_share for version in ("0.19.1", "0.21.0", None)] == [0, 1, 1]
    assert server("0.7.3", 8192).captured == 35


def test_ranks_meet_within_the_share_before_0_12() -> None:
    assert server("0.11.0", 8192, "H100", 2).worker.met == 2**30
    assert server("0.12.0", 8192, "H100", 2).worker.met == 0
    assert server("0.11.0", 8192, "RTX4090", 2).worker.met == 128 * 2**20
