import json
from pathlib import Path

import msgspec
import pytest

from tests.estimators.serving.models import DEEPSEEK_V3, GEMMA_3_27B, H100, LLAMA_2_7B, LLAMA_8B, LLAMA_70B, serve, size
from tests.tables import for_each, rows
from vramtui.core.base.units import GIB, KIB, MIB
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.serving.parts import TooLargeError
from vramtui.estimators.analytic.serving.sglang import SglangServer, settings_of
from vramtui.estimators.analytic.sizes.partition import ALONE
from vramtui.estimators.analytic.sizes.precision import bytes_per_token, cache_bits, cache_bytes
from vramtui.estimators.torch_facts.cards import cuda_context_bytes
from vramtui.models.specs.decoder import decoder_spec
from vramtui.presets.model_presets import preset_of

CONFIGS = Path(__file__).parents[2] / "golden" / "serving" / "vllm_configs.json"


def run(**more: object) -> ServeRun:
    return msgspec.convert({"kind": "serve", "engine": "sglang", **more}, ServeRun)


@for_each([
    # H100, 23 January 2025: "avail mem=78.81 GB", "K size: 27.13 GB, V size: 27.13 GB",
    # "max_total_num_tokens=444500, max_running_requests=2049, context_len=131072".
    (78.81, 0.88, 444_500, 2049),
    # H100, 25 March 2025: "avail mem=63.48 GB, mem usage=15.11 GB", "#tokens: 442750".
    (63.48 + 15.11, 0.88, 442_750, 2048),
    # A card of 24 GB, 14 July 2025: "avail mem=7.37 GB, mem usage=15.02 GB", "#tokens: 38141".
    (7.37 + 15.02, 0.879, 38_141, 2048),
])  # fmt: skip
def test_sglang_logs_as_many_tokens_of_llama_3_1_8b(free: float, fraction: float, tokens: int, requests: int) -> None:
    """Its start-up logs, whose sizes are in GiB with two places; the weights take 0.1 GiB more there, or 900 tokens."""
    context = cuda_context_bytes(H100.capability)
    device = msgspec.structs.replace(H100, total_memory=int(free * GIB) + context)
    server = SglangServer(LLAMA_8B, run(mem_fraction_static=fraction), device, ALONE)
    assert server.rank.tokens == pytest.approx(tokens, abs=1400)
    assert server.requests == pytest.approx(requests, abs=1)
    table = size(server.estimate(), "table of requests")
    assert table == 4 * (server.requests + 1) * (131072 + 4)


@pytest.mark.parametrize(("name", "tokens"), rows(__file__, "sglang_has_as_many_tokens"))
def test_sglang_has_as_many_tokens_on_an_emulated_h100(name: str, tokens: int, tmp_path: Path) -> None:
    """`max_total_num_tokens` of 0.5.6.post2's own code: `vramtui dry-run --gpu H100 python -m sglang.launch_server`."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(CONFIGS.read_text(encoding="utf-8"))[name]), encoding="utf-8")
    model = preset_of(path).model
    assert isinstance(model, TransformerModel)
    server = SglangServer(model, run(precision="bf16"), H100, ALONE)
    assert server.rank.tokens == pytest.approx(tokens, rel=1e-3)


@for_each(
    [
        ("RTX4090", 1, 2048, 24, 0.845), ("RTX4090", 4, 2048, 80, 0.825), ("H100", 1, 8192, 256, 0.834),
        ("H100", 8, 8192, 512, 0.817), ("H200", 1, 8192, 256, 0.906), ("B200", 1, 16384, 512, 0.857),
    ]
)  # fmt: skip
def test_what_sglang_takes_by_itself(name: str, tensor: int, chunk: int, graphs: int, fraction: float) -> None:
    """As its code has it: (MiB - 512 - 1.5 chunk - 2 graphs - 128 ranks) / MiB, of the MiB that torch sees."""
    settings = settings_of(LLAMA_8B, run(), card(name), Parallel(tensor=tensor))
    assert (settings.chunk, settings.graphs) == (chunk, graphs)
    mebibytes = card(name).total_memory / MIB
    aside = 512 + 1.5 * chunk + 2 * graphs + 128 * tensor
    assert settings.fraction == round((mebibytes - (max(aside, 10240) if mebibytes > 61440 else aside)) / mebibytes, 3)
    assert settings.fraction == pytest.approx(fraction, abs=0.004)


def test_the_parts_of_the_pool_add_up_or_are_refused() -> None:
    estimate = serve(LLAMA_8B, run(max_model_len=8192))
    assert sum(part.at_peak for part in estimate.parts) == estimate.process < H100.total_memory
    assert estimate.peak_phase == "serve"
    assert all(part.formula and part.source for part in estimate.parts)
    small, large = (serve(LLAMA_8B, run(mem_fraction_static=share)) for share in (0.5, 0.8))
    assert size(large, "kv cache") - size(small, "kv cache") == pytest.approx(
        0.3 * (79.19 * GIB - 740 * MIB), rel=0.001
    )
    server = SglangServer(GEMMA_3_27B, run(max_model_len=32768), card("H200"), ALONE)
    straight, sliding = 10, 52
    assert server.rank.token == 4096 * 2 * straight + int(0.8 * 4096 * 2 * sliding)
    assert any("0.8 of the tokens" in note for note in server.estimate().assumptions)
    with pytest.raises(TooLargeError, match="leaves nothing for keys and values") as refused:
        serve(LLAMA_70B, run())
    assert refused.value.needed > H100.total_memory
    spread = serve(LLAMA_70B, run(), parallel=Parallel(tensor=4))
    assert any("bytes of one card of 4" in note for note in spread.assumptions)
    group = {"name": "vision.patch", "shape": [8, 8], "place": "tower"}
    table = msgspec.to_builtins(LLAMA_8B) | {"tensors": [{"name": "q_proj", "shape": [4096, 4096]}, group]}
    seeing = msgspec.convert(table, TransformerModel)
    plain = settings_of(LLAMA_8B, run(), H100, ALONE).fraction
    assert settings_of(seeing, run(), H100, ALONE).fraction == plain * 0.95
    kinds = decoder_spec(GEMMA_3_27B).caches()
    assert [(kind.layers, kind.window) for kind in kinds] == [(10, None), (52, 1024)]
    each = 2 * 16 * 128 * 2
    assert cache_bytes(kinds, 32768, 16) == each * (10 * 32768 + 52 * 1024)
    assert cache_bytes(kinds, 100, 16) == each * 62 * 100


@for_each([
    (LLAMA_8B, 128 * KIB),  # grouped queries, 8 heads
    (LLAMA_70B, 320 * KIB),
    (LLAMA_2_7B, 512 * KIB),  # a key and a value for each of 32 heads
    (DEEPSEEK_V3, 70_272),  # DeepSeek-V3's latent: (512 + 64) x 61 layers x 2 B
])  # fmt: skip
def test_bytes_of_one_token_in_bf16(model: TransformerModel, published: int) -> None:
    assert bytes_per_token(model, cache_bits(None, "bf16")) == published
