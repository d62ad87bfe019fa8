from statistics import median

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimators.serving.models import DEEPSEEK_V3, GEMMA_3_27B, H100, LLAMA_8B, LLAMA_70B, serve, size
from tests.recorded.vllm_logs import errors, rows
from tests.tables import for_each
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import card
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.serving.parts import TooLargeError
from vramtui.estimators.analytic.serving.vllm import Server


def test_servers_take_what_their_logs_say() -> None:
    """It reports "model weights took 14.9888 GB" (GiB) for Llama 3.1 8B in bf16: the rotary table is in it."""
    estimate = serve(LLAMA_8B, ServeRun())
    assert (size(estimate, "weights") + size(estimate, "rotary table")) / GIB == pytest.approx(14.9888, abs=0.0002)
    # Tensors go one by one until the limit is reached: beyond it by less than the largest of a block (224 MiB).
    whole, offloaded = serve(LLAMA_8B, ServeRun()), serve(LLAMA_8B, ServeRun(cpu_offload_gb=4))
    gone = size(whole, "weights") - size(offloaded, "weights")
    assert 4 * GIB <= gone < 4 * GIB + 224 * 2**20
    tails = size(whole, "weight tails") - size(offloaded, "weight tails")
    assert size(offloaded, "kv cache") - size(whole, "kv cache") == pytest.approx(gone + tails, abs=2**21)
    assert offloaded.process == pytest.approx(whole.process, abs=2**21)
    everything = serve(LLAMA_8B, ServeRun(cpu_offload_gb=1000))
    assert size(everything, "weights") == 2 * 2 * 128256 * 4096 + 2 * 4096
    quarter = serve(LLAMA_8B, ServeRun(quantization="int4", cpu_offload_gb=1000))
    assert size(quarter, "weights") == size(everything, "weights")
    # Start-up logs of vLLM 0.19 on H100s; graphs and what lies outside torch are fitted to some of them.
    found = list(rows())
    assert len(found) == 31
    most = {"weights": 0.001, "activation": 0.005, "non_torch": 0.02, "graphs": 0.06, "kv_tokens": 0.0005}
    for part, bound in most.items():
        assert median(map(abs, errors(part, found))) <= bound, part
    counted = [row for row in found if row.counted]
    assert max(map(abs, errors("weights", counted))) <= 0.003
    assert max(map(abs, errors("kv_tokens", counted))) <= 0.015
    halves = [row for row in counted if "float32" not in row.name]
    assert max(map(abs, errors("activation", halves))) <= 0.05


def test_sequences_at_once_go_by_the_card_and_the_pass() -> None:
    """VLLM's own defaults: 1024 from 70 GiB on but for the A100, else 256; a score takes 14 bytes before 0.25."""
    large, small = serve(LLAMA_8B, ServeRun(max_model_len=8192)), serve(LLAMA_8B, ServeRun(max_num_seqs=256))
    assert size(large, "profiled batch") > size(small, "profiled batch")
    assert any("at most 1024 that run together" in note for note in large.assumptions)
    a100 = serve(LLAMA_8B, ServeRun(max_model_len=8192), card("A100-80GB"))
    assert any("at most 256 that run together" in note for note in a100.assumptions)
    one, four = (serve(LLAMA_8B, ServeRun(engine_version="0.21"), parallel=Parallel(tensor=n)) for n in (1, 4))
    assert size(one, "profiled batch") == size(four, "profiled batch")
    assert server(None, 512, "H100", max_num_seqs=2).tokens == 1024


def test_what_lies_in_the_share_of_one_card_and_of_four() -> None:
    within, above = (serve(LLAMA_8B, ServeRun(max_model_len=8192, graphs_in_share=kept)) for kept in (True, False))
    graphs = size(within, "cuda graphs")
    assert size(above, "kv cache") == pytest.approx(size(within, "kv cache") + graphs, abs=4 << 20)
    assert above.process == pytest.approx(within.process + graphs, abs=4 << 20)
    for share in (0.5, 0.9):
        estimate = serve(LLAMA_8B, ServeRun(gpu_memory_utilization=share, max_model_len=8192))
        assert share * H100.total_memory < estimate.process < share * H100.total_memory + GIB
        assert sum(part.at_peak for part in estimate.parts) == estimate.process
    llama = Server(LLAMA_8B, ServeRun(max_model_len=8192), H100, Parallel())
    tokens = llama.room
    assert tokens == llama.blocks * 16
    said = " ".join(serve(LLAMA_8B, ServeRun(max_model_len=8192)).assumptions)
    assert f"room for {tokens:,} tokens of keys and values: {tokens / 8192:.2f} sequences of 8,192 tokens" in said
    assert [server(version, 8192).worker.graphs_in_share for version in ("0.19.1", "0.21.0", None)] == [0, 1, 1]
    assert (server("0.7.3", 8192).captured, server("0.11.0", 8192, "H100", 2).worker.met) == (35, 2**30)
    assert server("0.12.0", 8192, "H100", 2).worker.met == 0
    assert server("0.11.0", 8192, "RTX4090", 2).worker.met == 128 * 2**20
    one = serve(LLAMA_70B, ServeRun(max_model_len=8192), card("B200"))
    four = serve(LLAMA_70B, ServeRun(max_model_len=8192), card("B200"), Parallel(tensor=4))
    assert size(four, "weights") >= size(one, "weights") / 4
    assert size(four, "weights") == pytest.approx(size(one, "weights") / 4, rel=0.001)
    assert size(four, "nccl") > 0
    assert any("one card of 4" in note for note in four.assumptions)
    two = serve(LLAMA_70B, ServeRun(max_num_seqs=1024, engine_version="0.11"), card("H200"), Parallel(pipeline=2))
    assert any("the tightest: pipeline rank 1 of 2 (layers 40–79, output layer)" in note for note in two.assumptions)
    # MLA's latent belongs to all heads, so tensor ranks each keep all of it.
    estimate = serve(DEEPSEEK_V3, ServeRun(quantization="fp8", max_model_len=32768), card("H200"), Parallel(tensor=8))
    pool = next(part for part in estimate.parts if part.name == "kv cache")
    assert "16, 1,124,352 B each" in pool.formula  # 16 tokens x 70,272 B


@for_each([(20000, 17.06), (29000, 17.98)])
def test_the_profiled_batch_is_what_a_3090_was_seen_to_need(tokens: int, peak: float) -> None:
    """Two reports of one user: torch's peak over weights of 14.9888 GiB, with so many tokens in a pass."""
    run = ServeRun(max_model_len=tokens, max_num_batched_tokens=tokens, enforce_eager=True, engine_version="0.6.4")
    profiled = size(serve(LLAMA_8B, run), "profiled batch") / GIB
    assert profiled == pytest.approx(peak - 14.9888, abs=0.02)


def test_sliding_layers_and_fewer_bits_leave_room_for_more() -> None:
    slid = Server(GEMMA_3_27B, ServeRun(max_model_len=32768, engine_version="0.25"), H100, Parallel())
    full = msgspec.structs.replace(GEMMA_3_27B, sliding_window=None, sliding_window_pattern=None)
    straight = Server(full, ServeRun(max_model_len=32768, engine_version="0.25"), H100, Parallel())
    assert slid.blocks / slid.worker.pages.per_sequence > 1.5 * straight.blocks / straight.worker.pages.per_sequence

    def room(run: ServeRun) -> int:
        return size(serve(LLAMA_8B, run), "kv cache")

    plain = room(ServeRun())
    assert room(ServeRun(quantization="fp8")) > plain + 6 * GIB
    assert room(ServeRun(quantization="int4")) > room(ServeRun(quantization="fp8"))
    assert room(ServeRun(enforce_eager=True)) > plain
    assert room(ServeRun(max_num_batched_tokens=2048)) > plain
    weights = serve(LLAMA_8B, ServeRun(quantization="int4")).parts[0]
    assert weights.formula.endswith("embed_tokens, layer_norm, lm_head, norm stay as they are")
    with pytest.raises(TooLargeError, match="the longest that fits is") as refused:
        serve(LLAMA_8B, ServeRun(), card("RTX4090"))
    longest = int(str(refused.value).rsplit(maxsplit=1)[1].replace(",", ""))
    serve(LLAMA_8B, ServeRun(max_model_len=longest), card("RTX4090"))
    with pytest.raises(TooLargeError):
        serve(LLAMA_8B, ServeRun(max_model_len=longest + 1), card("RTX4090"))
    assert refused.value.needed > card("RTX4090").total_memory * 0.9


@given(
    tokens=st.sampled_from([2048, 8192]),
    sequences=st.integers(1, 512),
    share=st.floats(0.5, 1.0),
    cache=st.sampled_from([None, "fp8"]),
)
def test_what_is_set_aside_is_within_the_share(tokens: int, sequences: int, share: float, cache: None) -> None:
    run = ServeRun(
        max_num_batched_tokens=tokens, max_num_seqs=sequences, gpu_memory_utilization=share, kv_cache=cache,
        max_model_len=4096,
    )  # fmt: skip
    estimate = serve(LLAMA_8B, run)
    assert (estimate.reserved or 0) <= H100.total_memory * share
    assert sum(part.at_peak for part in estimate.parts) == estimate.process


def server(version: str | None, length: int, device: str = "RTX3090", ranks: int = 1, **more: int) -> Server:
    run = ServeRun(max_model_len=length, engine_version=version, **more)  # type: ignore[arg-type] # numbers of a run
    return Server(LLAMA_8B, run, card(device), Parallel(tensor=ranks))


@for_each(
    [
        ("0.6.4", 8192, 8192, 256), ("v0.7.3.post1", 29_000, 29_000, 256), ("0.7.3", 40_960, 2048, 256),
        ("0.9.2", 8192, 2048, 256), (None, 8192, 2048, 256),
    ]
)  # fmt: skip
def test_a_pass_is_what_the_release_profiles(version: str | None, length: int, tokens: int, sequences: int) -> None:
    asked = server(version, length)
    assert (asked.tokens, asked.sequences) == (tokens, sequences)


@for_each([("0.6.4", 0.29), ("0.7.3", 0.028), ("0.9.0", 0.11), ("0.21", 0.11)])
def test_outside_torch_counts_from_where_the_release_looks(version: str, gib: float) -> None:
    assert server(version, 8192).worker.kernels / 2**30 == pytest.approx(gib, abs=0.1)
