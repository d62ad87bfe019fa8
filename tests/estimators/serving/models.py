"""Models as their cards give them, for tests of servers, caches and shares."""

import msgspec

from vramtui.core.estimate.devices import Device, card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun, Workload
from vramtui.estimators.analytic import ANALYTIC

H100 = card("H100")

LLAMA_8B = TransformerModel(
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    intermediate_size=14336,
    vocab_size=128256,
    max_position_embeddings=131072,
)
LLAMA_70B = msgspec.structs.replace(
    LLAMA_8B, hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, intermediate_size=28672
)
LLAMA_2_7B = TransformerModel(
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    intermediate_size=11008,
    vocab_size=32000,
    max_position_embeddings=4096,
)
DEEPSEEK_V3 = TransformerModel(
    hidden_size=7168,
    num_hidden_layers=61,
    num_attention_heads=128,
    vocab_size=129280,
    intermediate_size=18432,
    max_position_embeddings=163840,
    num_experts=256,
    num_experts_per_tok=8,
    moe_intermediate_size=2048,
    n_shared_experts=1,
    first_k_dense_replace=3,
    router_bias=True,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)
GEMMA_3_27B = TransformerModel(
    hidden_size=5376,
    num_hidden_layers=62,
    num_attention_heads=32,
    num_key_value_heads=16,
    head_dim=128,
    intermediate_size=21504,
    vocab_size=262208,
    max_position_embeddings=131072,
    sliding_window=1024,
    sliding_window_pattern=6,
    norms_per_layer=4,
    tie_word_embeddings=True,
    qk_norm=True,
)


def serve(model: TransformerModel, run: ServeRun, device: Device = H100, parallel: Parallel | None = None) -> Estimate:
    return ANALYTIC.estimate(Workload(model=model, run=run, parallel=parallel), device)


def size(estimate: Estimate, name: str) -> int:
    return next((part.bytes for part in estimate.parts if part.name == name), 0)
