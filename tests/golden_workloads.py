"""The workloads whose true peaks are known, as Workloads: what the estimators are measured against.

A name is that of a recorded run: model, attention, precision, optimizer, checkpointing.
"""

from typing import Literal

from vramtui.core.schema.bounds import Implementation
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.layer_models import Act, ConvNetModel, Layer, Linear, Norm, Repeat, SequentialModel, Stage
from vramtui.core.schema.workload import Attention, Optimizer, OptimizerImplementation, Precision, TrainRun, Workload

RECORDED = "2.13"
"""The release of PyTorch that recorded figures are those of, where a file says no other."""

PRECISIONS: dict[str, Precision] = {"fp32": "fp32", "bf16amp": "bf16-mixed", "bf16": "bf16"}
ATTENTIONS: dict[str, Attention] = {"eager": "eager", "sdpa": "flash"}


def _gpt(
    vocab: int, hidden: int, layers: int, heads: int, context: int, *, implementation: Implementation = "plain"
) -> TransformerModel:
    """A GPT-2: learned positions, layer norms, biases, GELU, a head tied to the embedding.

    Transformers' has dropout and spells GELU's approximation out; the plain one has neither.
    """
    plain = implementation == "plain"
    return TransformerModel(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=context,
        position="learned",
        hidden_act="gelu" if plain else "gelu_new",
        gated_mlp=False,
        norm="layernorm",
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
        hidden_dropout=0.0 if plain else 0.1,
        attention_dropout=0.0 if plain else 0.1,
        fused_qkv=True,
        implementation=implementation,
    )


def _llama(hidden: int, ffn: int, layers: int, *, heads: int, kv_heads: int, context: int) -> TransformerModel:
    return TransformerModel(
        vocab_size=32000,
        hidden_size=hidden,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
    )


# Model, batch size and sequence length by the name's beginning.
MODELS: dict[str, tuple[TransformerModel, int, int]] = {
    "gpt_tiny": (_gpt(65, 128, 4, 4, 256), 16, 256),
    "gpt_124m": (_gpt(50304, 768, 12, 12, 1024), 4, 1024),
    "hf_gpt2": (_gpt(50257, 768, 12, 12, 1024, implementation="huggingface"), 4, 512),
    "hf_llama_small": (_llama(512, 1376, 8, heads=8, kv_heads=8, context=1024), 4, 512),
    "hf_llama1b": (_llama(2048, 5632, 22, heads=32, kv_heads=4, context=2048), 2, 1024),
}
NAMES = (
    "gpt_124m_eager_bf16amp_adamw_ckpt", "gpt_124m_eager_fp32_adamw", "gpt_124m_sdpa_bf16amp_adamw",
    "gpt_124m_sdpa_bf16amp_adamw_ckpt", "gpt_124m_sdpa_fp32_adamw", "gpt_tiny_eager_bf16_adamw",
    "gpt_tiny_eager_bf16amp_adamw", "gpt_tiny_eager_bf16amp_adamw_ckpt", "gpt_tiny_eager_fp32_adamw",
    "gpt_tiny_eager_fp32_adamw_ckpt", "gpt_tiny_sdpa_bf16_adamw", "gpt_tiny_sdpa_bf16amp_adamw",
    "gpt_tiny_sdpa_bf16amp_adamw_ckpt", "gpt_tiny_sdpa_fp32_adamw", "gpt_tiny_sdpa_fp32_adamw_ckpt",
    "hf_gpt2_sdpa_bf16amp_adamw", "hf_llama1b_sdpa_bf16_adamw", "hf_llama1b_sdpa_bf16_adamw_ckpt",
    "hf_llama_small_sdpa_bf16_adamw",
)  # fmt: skip


def workload(name: str) -> Workload:
    """The workload behind a recorded run's name.

    Raises:
        KeyError: the name is not one of a transformer's runs.
    """
    start = next((known for known in MODELS if name.startswith(f"{known}_")), name)
    model, batch, length = MODELS[start]
    attention, precision, optimizer, *checkpointing = name.removeprefix(f"{start}_").split("_")
    if optimizer != "adamw":
        raise KeyError(name)
    return Workload(
        model=model,
        run=TrainRun(
            torch=RECORDED,
            batch_size=batch,
            sequence_length=length,
            precision=PRECISIONS[precision],
            attention=ATTENTIONS[attention],
            checkpointing="full" if checkpointing else "none",
        ),
    )


def _mlp(norm: Literal["layer", "manual"] | None = None) -> SequentialModel:
    """Four layers of 1024 and ten classes."""
    inner: tuple[Layer, ...] = (Linear(out_features=1024), *((Norm(norm=norm),) if norm else ()), Act())
    return SequentialModel(input_shape=(1024,), layers=(Repeat(layers=inner, times=4), Linear(out_features=10)))


def _layers(
    model: SequentialModel | ConvNetModel,
    batch: int,
    optimizer: Optimizer,
    implementation: OptimizerImplementation = "foreach",
    *,
    precision: Precision = "fp32",
    accumulation: int = 1,
) -> Workload:
    return Workload(
        model=model,
        run=TrainRun(
            torch=RECORDED,
            batch_size=batch,
            precision=precision,
            optimizer=optimizer,
            optimizer_implementation=implementation,
            gradient_accumulation_steps=accumulation,
        ),
    )


_LINEAR = SequentialModel(input_shape=(256,), layers=(Linear(out_features=250),), loss="sum")
_WIDE = SequentialModel(input_shape=(4096,), layers=(Linear(out_features=4096),))
_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
_RESNET = ConvNetModel(stages=tuple(Stage(blocks=b, channels=c, stride=s) for b, c, s in _STAGES), cudnn=False)

TRANSFORMERS = {name: workload(name) for name in NAMES}
LAYER_LISTS = {
    "linear_fp32_sgd": _layers(_LINEAR, 1, "sgd"),
    "linear_fp32_adamw": _layers(_WIDE, 64, "adamw"),
    "mlp_fp32_sgd": _layers(_mlp(), 256, "sgd"),
    "mlp_fp32_momentum": _layers(_mlp(), 256, "momentum"),
    "mlp_fp32_adam": _layers(_mlp(), 256, "adam"),
    "mlp_fp32_adamw": _layers(_mlp(), 256, "adamw"),
    "mlp_fp32_adamw_fused": _layers(_mlp(), 256, "adamw", "fused"),
    "mlp_fp32_adamw_foreach": _layers(_mlp(), 256, "adamw"),
    "mlp_fp32_adamw_loop": _layers(_mlp(), 256, "adamw", "loop"),
    "mlp_fp32_rmsprop": _layers(_mlp(), 256, "rmsprop"),
    "mlp_bf16amp_adamw": _layers(_mlp(), 256, "adamw", precision="bf16-mixed"),
    "mlp_bf16_adamw": _layers(_mlp(), 256, "adamw", precision="bf16"),
    "mlp_accum4_adamw": _layers(_mlp(), 256, "adamw", accumulation=4),
    "layernorm_fp32_sgd": _layers(_mlp("layer"), 256, "sgd"),
    "manualnorm_fp32_sgd": _layers(_mlp("manual"), 256, "sgd"),
    "resnet50_native_fp32_momentum": _layers(_RESNET, 16, "momentum"),
}
WORKLOADS = TRANSFORMERS | LAYER_LISTS
