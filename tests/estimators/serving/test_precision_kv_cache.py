"""What a token leaves in a cache, beside what models' papers and cards say."""

from tests.estimators.serving.models import DEEPSEEK_V3, GEMMA_3_27B, LLAMA_2_7B, LLAMA_8B, LLAMA_70B
from tests.tables import for_each
from vramtui.core.base.units import KIB
from vramtui.core.schema.models import TransformerModel
from vramtui.estimators.analytic.sizes.precision import bytes_per_token, cache_bits, cache_bytes
from vramtui.models.specs.decoder import decoder_spec


@for_each(
    [
        (LLAMA_8B, 128 * KIB),  # grouped queries, 8 heads
        (LLAMA_70B, 320 * KIB),
        (LLAMA_2_7B, 512 * KIB),  # a key and a value for each of 32 heads
        (DEEPSEEK_V3, 70_272),  # DeepSeek-V3's latent: (512 + 64) x 61 layers x 2 B
    ]
)
def test_bytes_of_one_token_in_bf16(model: TransformerModel, published: int) -> None:
    assert bytes_per_token(model, cache_bits(None, "bf16")) == published


def test_types_of_the_cache() -> None:
    one = {
        kind: bytes_per_token(LLAMA_8B, cache_bits(kind, "bf16")) for kind in ("fp32", "fp16", "fp8", "int8", "int4")
    }
    assert one["fp32"] == 2 * one["fp16"] == 4 * one["fp8"]
    # llama.cpp's q8_0 and q4_0 keep a scale for each 32 numbers: 34 and 18 bytes instead of 64.
    assert one["int8"] == one["fp16"] * 34 // 64
    assert one["int4"] == one["fp16"] * 18 // 64


def test_sliding_layers_keep_their_window() -> None:
    kinds = decoder_spec(GEMMA_3_27B).caches()
    assert [(kind.layers, kind.window) for kind in kinds] == [(10, None), (52, 1024)]
    each = 2 * 16 * 128 * 2
    assert cache_bytes(kinds, 32768, 16) == each * (10 * 32768 + 52 * 1024)
    assert cache_bytes(kinds, 100, 16) == each * 62 * 100
