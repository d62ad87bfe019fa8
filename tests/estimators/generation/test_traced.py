"""Prefill beside what transformers' own code asked of the allocator, followed operator by operator on fake tensors.

Two prompts of 2,048 tokens (1,024 for GPT-2) through six layers in bf16, with transformers 5.23 and PyTorch 2.13.
"""

import msgspec
import pytest

from tests.tables import for_each
from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Attention, CacheImplementation, InferRun, Precision, Workload
from vramtui.estimators.analytic import ANALYTIC

LLAMA = TransformerModel(
    hidden_size=1024,
    num_hidden_layers=6,
    num_attention_heads=8,
    num_key_value_heads=4,
    intermediate_size=2816,
    vocab_size=32000,
    max_position_embeddings=8192,
)
LATENT = msgspec.structs.replace(
    LLAMA,
    num_key_value_heads=None,
    q_lora_rank=384,
    kv_lora_rank=256,
    qk_nope_head_dim=64,
    qk_rope_head_dim=32,
    v_head_dim=64,
)
SLIDING = msgspec.structs.replace(LLAMA, sliding_window=512)
MIXTURE = msgspec.structs.replace(LLAMA, num_experts=8, num_experts_per_tok=2)
GPT2 = TransformerModel(
    hidden_size=1024,
    num_hidden_layers=6,
    num_attention_heads=8,
    vocab_size=32000,
    max_position_embeddings=2048,
    position="learned",
    gated_mlp=False,
    norm="layernorm",
    hidden_act="gelu_new",
    fused_qkv=True,
    attention_bias=True,
    output_bias=True,
    mlp_bias=True,
    tie_word_embeddings=True,
)


@for_each(
    [
        (LLAMA, "flash", "dynamic", 2048, 463_547_392),
        (LLAMA, "flash", "static", 2048, 463_747_072),
        (LLAMA, "eager", "dynamic", 2048, 1_098_984_448),
        (SLIDING, "flash", "dynamic", 2048, 467_744_768),
        (MIXTURE, "flash", "dynamic", 2048, 1_319_645_184),
        (LATENT, "flash", "dynamic", 2048, 406_933_504),
        (GPT2, "flash", "dynamic", 1024, 394_977_280),
    ]
)
def test_the_peak_is_that_of_the_code(
    model: TransformerModel, attention: Attention, cache: CacheImplementation, length: int, traced: int
) -> None:
    run = InferRun(batch_size=2, sequence_length=length, new_tokens=9, attention=attention, cache_implementation=cache)
    estimate = ANALYTIC.estimate(Workload(model=model, run=run), card("H200"))
    assert estimate.allocated == pytest.approx(traced, rel=0.02)


@for_each(
    [
        (LLAMA, 2048, "fp32", "H200", 1_440_880_128),
        (LLAMA, 2048, "fp16", "T4", 1_073_982_976),
        (LLAMA, 2048, "bf16", "T4", 1_073_982_976),
        (LLAMA, 2048, "fp32", "T4", 1_415_845_376),
        (GPT2, 1024, "fp16", "T4", 369_942_528),
        (GPT2, 1024, "bf16", "T4", 495_788_544),
        (GPT2, 1024, "fp32", "T4", 732_389_376),
    ]
)
def test_the_kernel_is_the_one_that_card_and_precision_leave(
    model: TransformerModel, length: int, precision: Precision, gpu: str, measured: int
) -> None:
    """Held to the CUDA build. Plain scores of 2,048 tokens were up to 22 % too high with a softmax of its own zeros."""
    run = InferRun(batch_size=2, sequence_length=length, new_tokens=4, precision=precision, attention="flash")
    estimate = ANALYTIC.estimate(Workload(model=model, run=run), card(gpu))
    assert estimate.allocated == pytest.approx(measured, rel=0.015)
