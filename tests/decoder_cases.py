"""Decoders with recorded peaks: adapters, sliding windows, generation."""

import msgspec

from tests.golden_workloads import RECORDED
from tests.other_model_cases import Case, Config
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Attention, InferRun, Lora, Precision, TrainRun, Workload

PRECISIONS: tuple[Precision, ...] = ("bf16", "bf16-mixed", "fp32")
ATTENTION = ("q_proj", "v_proj")
EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SMALL: Config = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4,
    "intermediate_size": 1408, "vocab_size": 8000, "max_position_embeddings": 2048,
}  # fmt: skip
MEDIUM: Config = SMALL | {
    "hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 16, "intermediate_size": 2816,
    "vocab_size": 32000,
}  # fmt: skip
LARGE: Config = MEDIUM | {
    "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 8192, "max_position_embeddings": 4096,
}  # fmt: skip
# Shapes, samples and tokens in each.
SIZES: dict[str, tuple[Config, int, int]] = {
    "small": (SMALL, 2, 512),
    "medium": (MEDIUM, 2, 512),
    "large": (LARGE, 4, 1024),
    "biased": (LARGE | {"attention_bias": True}, 4, 1024),
}


def _adapted(size: str, lora: Lora, precision: Precision = "bf16", *, checkpointed: bool = False) -> Case:
    """Adapters in fp32 beside weights in bf16 (or in fp32 throughout)."""
    config, batch, length = SIZES[size]
    run = TrainRun(
        torch=RECORDED,
        batch_size=batch,
        sequence_length=length,
        precision=precision,
        attention="flash",
        checkpointing="full" if checkpointed else "none",
        lora=lora,
    )
    how = "dora" if lora.use_dora else "lora"
    words = ["every" if lora.target_modules == EVERY else "", "dropout" if lora.dropout else ""]
    words += [precision if precision != "bf16" else "", "checkpointed" if checkpointed else ""]
    name = "-".join([how, size, *filter(None, words)])
    # Llama's attention has its bias in the output projection too.
    model = TransformerModel(**config, output_bias=config.get("attention_bias", False))
    return Case(name=name, workload=Workload(model=model, run=run))


def _adapters() -> list[Case]:
    every = Lora(rank=16, target_modules=EVERY, use_dora=True)
    biased = Lora(rank=16, target_modules=ATTENTION, use_dora=True)
    cases = []
    for size in ("small", "medium", "large"):
        loras = (Lora(rank=16, target_modules=ATTENTION), biased, every, msgspec.structs.replace(biased, dropout=0.1))
        cases += [_adapted(size, lora) for lora in loras]
        cases.append(_adapted(size, biased, "bf16-mixed"))
    return [
        *cases,
        _adapted("large", every, "fp32"),
        _adapted("large", every, checkpointed=True),
        _adapted("biased", biased),
    ]


WINDOW = 256


def _sliding(precision: Precision, how: str = "", device: str = "H200", attention: Attention = "flash") -> Case:
    """Mistral's layers, each of which looks back over a quarter of the tokens."""
    config, batch, length = SIZES["large"]
    run = TrainRun(
        torch=RECORDED,
        batch_size=batch,
        sequence_length=length,
        precision=precision,
        attention=attention,
        checkpointing="full" if how == "checkpointed" else "none",
    )
    model = TransformerModel(**config, sliding_window=WINDOW)
    name = "-".join(["window", precision, *filter(None, [how, device if device != "H200" else ""])])
    return Case(name=name, workload=Workload(model=model, run=run), device=device)


def _windows() -> list[Case]:
    plain = [_sliding(precision) for precision in PRECISIONS]
    return [
        *plain,
        _sliding("bf16", "checkpointed"),
        _sliding("bf16", "eager", attention="eager"),
        *(_sliding(precision, device="A100-80GB") for precision in PRECISIONS),
    ]


def _other_ways() -> list[Case]:
    """Lion, and the loss in chunks."""
    config, batch, length = SIZES["large"]
    model = TransformerModel(**config)
    plain = TrainRun(torch=RECORDED, batch_size=batch, sequence_length=length, precision="bf16", attention="flash")
    ways: dict[str, Config] = {"lion-large": {"optimizer": "lion"}, "chunked-large": {"cross_entropy": "chunked"}}
    return [
        Case(name=name, workload=Workload(model=model, run=msgspec.structs.replace(plain, **way)))
        for name, way in ways.items()
    ]


def _generating() -> list[Case]:
    """Calls of generate(), with prompts of 1,024 tokens."""
    config, _, length = SIZES["large"]
    run = InferRun(torch=RECORDED, batch_size=16, sequence_length=length, new_tokens=4)
    models = {"generate-llama": config, "generate-window": config | {"sliding_window": WINDOW}}
    return [
        Case(name=name, workload=Workload(model=TransformerModel(**model), run=run)) for name, model in models.items()
    ]


CASES = {case.name: case for case in (*_adapters(), *_windows(), *_other_ways(), *_generating())}
