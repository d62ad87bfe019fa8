"""Jobs for a real card: `python benchmarks/card/jobs.py NAME` trains three steps on "cuda", or generates.

Weights are random and nothing is downloaded. `ESTIMATES` says what `vramtui estimate` is asked for the same job.
"""

import contextlib
import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 3
BF16 = torch.bfloat16
Batch = Callable[[], dict[str, Tensor]]
Loss = Callable[[nn.Module, dict[str, Tensor]], Tensor]


def library(name: str) -> Any:  # noqa: ANN401 - a module, loaded by the jobs that need it
    """A library beside torch."""
    return importlib.import_module(name)


def own_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The loss that a model of transformers computes itself."""
    loss: Tensor = model(**batch).loss
    return loss


def class_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Cross-entropy of a classifier of images."""
    return functional.cross_entropy(model(batch["images"]), batch["labels"])


def train(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss = own_loss,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    autocast: torch.dtype | None = None,
) -> None:
    """Three optimizer steps.

    Args:
        model: already on the card.
        batch: makes what one step is fed.
        loss: of the model and a batch.
        optimizer: made of the parameters that are trained.
        autocast: its type; float16 brings a GradScaler.
    """
    model.train()
    steps = optimizer([parameter for parameter in model.parameters() if parameter.requires_grad])
    scaler = torch.amp.GradScaler("cuda", enabled=autocast is torch.float16)
    for _ in range(STEPS):
        inputs = batch()
        with torch.autocast("cuda", autocast) if autocast is not None else contextlib.nullcontext():
            value = loss(model, inputs)
        scaler.scale(value).backward()
        scaler.step(steps)
        scaler.update()
        steps.zero_grad()


def words(batch: int, length: int, vocabulary: int) -> Batch:
    """Token ids (batch, length) that are their own labels."""

    def make() -> dict[str, Tensor]:
        ids = torch.randint(0, vocabulary, (batch, length), device="cuda")
        return {"input_ids": ids, "labels": ids}

    return make


def images(batch: int, *, channels_last: bool = False) -> Batch:
    """Images (batch, 3, 224, 224) of a thousand classes."""

    def make() -> dict[str, Tensor]:
        layout = torch.channels_last if channels_last else torch.contiguous_format
        pictures = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
        return {"images": pictures, "labels": torch.randint(0, 1000, (batch,), device="cuda")}

    return make


def causal(config: Any, dtype: torch.dtype = torch.float32) -> nn.Module:  # noqa: ANN401 - a class of transformers
    """A decoder of transformers with random weights, on the card."""
    with torch.device("cuda"):  # made there: a host takes a minute for the random numbers of 1B weights
        model: nn.Module = library("transformers").AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model


def llama() -> Any:  # noqa: ANN401 - as above
    """Llama 3.2 1B."""
    return library("transformers").LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, tie_word_embeddings=True, max_position_embeddings=131072, use_cache=False,
    )  # fmt: skip


def llama_full() -> None:
    train(causal(llama(), BF16), words(2, 1024, 128256))


def llama_lora() -> None:

    adapters = library("peft").LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    train(library("peft").get_peft_model(causal(llama(), BF16), adapters), words(4, 1024, 128256))


def llama_checkpointed() -> None:
    model = causal(llama(), BF16)
    model.gradient_checkpointing_enable()  # type: ignore[operator] # transformers' own
    train(model, words(4, 2048, 128256))


def llama_generates() -> None:
    model = causal(llama(), BF16).eval()
    ids = torch.randint(0, 128256, (8, 512), device="cuda")
    with torch.no_grad():
        model.generate(ids, max_new_tokens=128, min_new_tokens=128, do_sample=False, use_cache=True)  # type: ignore[operator] # as above


def gpt2(*, compile_it: bool = False) -> None:

    model = causal(library("transformers").GPT2Config(use_cache=False))
    train(torch.compile(model) if compile_it else model, words(8, 1024, 50257), autocast=BF16)  # type: ignore[arg-type] # torch says a callable


def qwen3() -> None:
    config = library("transformers").Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    train(causal(config), words(2, 1024, 151936), autocast=BF16)


def bert() -> None:

    train(
        library("transformers").BertForMaskedLM(library("transformers").BertConfig()).to("cuda"), words(32, 128, 30522)
    )


def t5() -> None:

    config = library("transformers").T5Config(
        d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, vocab_size=32128, decoder_start_token_id=0
    )

    def batch() -> dict[str, Tensor]:
        ids = torch.randint(0, 32128, (16, 512), device="cuda")
        return {"input_ids": ids, "labels": ids[:, :128].contiguous()}

    train(library("transformers").T5ForConditionalGeneration(config).to("cuda"), batch, autocast=BF16)


def vit() -> None:

    train(library("torchvision").models.vit_b_16().to("cuda"), images(64), loss=class_loss, autocast=torch.float16)


def resnet(*, benchmark: bool = False, channels_last: bool = False) -> None:

    torch.backends.cudnn.benchmark = benchmark
    net = library("torchvision").models.resnet50().to("cuda")
    if channels_last:
        net = net.to(memory_format=torch.channels_last)
    momentum = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    feed = images(64, channels_last=channels_last)
    train(net, feed, loss=class_loss, optimizer=momentum, autocast=torch.float16)


def unet() -> None:
    """Stable Diffusion 1.5's denoiser."""
    net = (
        library("diffusers")
        .UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
        .to("cuda")
    )

    def batch() -> dict[str, Tensor]:
        return {
            "sample": torch.randn(2, 4, 64, 64, device="cuda"),
            "timestep": torch.randint(0, 1000, (2,), device="cuda"),
            "encoder_hidden_states": torch.randn(2, 77, 768, device="cuda"),
        }

    def loss(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        noise = torch.randn_like(inputs["sample"])
        return functional.mse_loss(model(**inputs).sample.float(), noise)

    train(net, batch, loss=loss, autocast=BF16)


def lstm() -> None:
    """A language model of two recurrent layers, which cuDNN computes in one call each."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10000, 1024)
            self.layers = nn.LSTM(1024, 1024, num_layers=2, batch_first=True)
            self.head = nn.Linear(1024, 10000)

        def forward(self, ids: Tensor) -> Tensor:
            scores: Tensor = self.head(self.layers(self.embedding(ids))[0])
            return scores

    def batch() -> dict[str, Tensor]:
        return {"ids": torch.randint(0, 10000, (64, 128), device="cuda")}

    def loss(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        return functional.cross_entropy(model(inputs["ids"]).flatten(0, 1), inputs["ids"].flatten())

    train(Words().to("cuda"), batch, loss=loss)


def mixtral() -> None:
    """A small mixture of experts."""
    config = library("transformers").MixtralConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=3584, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=8, num_local_experts=8, use_cache=False,
    )  # fmt: skip
    train(causal(config, BF16), words(2, 1024, 32000))


def compiled(name: str) -> None:
    """Whole models of usual sizes under torch.compile, named before any of them ran."""
    transformers = library("transformers")
    compile_it: Callable[[nn.Module], nn.Module] = torch.compile  # type: ignore[assignment] # torch says a callable
    if name == "llama-1b":
        train(compile_it(causal(llama(), BF16)), words(2, 1024, 128256))
    elif name == "bert-base":
        net = transformers.BertForMaskedLM(transformers.BertConfig()).to("cuda")
        train(compile_it(net), words(32, 128, 30522), autocast=BF16)
    elif name == "opt-125m":
        config = transformers.OPTConfig(use_cache=False)
        train(compile_it(causal(config)), words(8, 512, 50272), autocast=BF16)
    elif name == "vit-b16":
        net = library("torchvision").models.vit_b_16().to("cuda")
        train(compile_it(net), images(64), loss=class_loss, autocast=BF16)
    else:
        net = library("torchvision").models.resnet50().to("cuda")
        train(compile_it(net), images(64), loss=class_loss, autocast=BF16)


JOBS: dict[str, Callable[[], None]] = {
    "llama-1b": llama_full,
    "llama-1b-lora": llama_lora,
    "llama-1b-checkpointed": llama_checkpointed,
    "llama-1b-generate": llama_generates,
    "gpt2-bf16": gpt2,
    "gpt2-compiled": partial(gpt2, compile_it=True),
    "qwen3-0.6b-bf16": qwen3,
    "bert-base-fp32": bert,
    "t5-small-bf16": t5,
    "vit-b16-fp16": vit,
    "resnet50-fp16": resnet,
    "resnet50-fp16-benchmark": partial(resnet, benchmark=True),
    "resnet50-fp16-channels-last": partial(resnet, channels_last=True),
    "sd15-unet-bf16": unet,
    "lstm-fp32": lstm,
    "mixtral-small": mixtral,
    "llama-1b-compiled": partial(compiled, "llama-1b"),
    "bert-base-compiled": partial(compiled, "bert-base"),
    "opt-125m-compiled": partial(compiled, "opt-125m"),
    "vit-b16-compiled": partial(compiled, "vit-b16"),
    "resnet50-compiled": partial(compiled, "resnet50"),
}

_TRAIN = ["--train", "--optimizer", "adamw"]
_LLAMA = ["meta-llama/Llama-3.2-1B"]
ESTIMATES: dict[str, list[str]] = {
    "llama-1b": [*_LLAMA, *_TRAIN, "--precision", "bf16", "-b", "2", "-s", "1024"],
    "llama-1b-lora": [
        *_LLAMA, *_TRAIN, "--precision", "bf16", "-b", "4", "-s", "1024",
        "--set", 'run.lora={rank=16,target_modules=["q_proj","v_proj"]}',
    ],
    "llama-1b-checkpointed": [
        *_LLAMA, *_TRAIN, "--precision", "bf16", "-b", "4", "-s", "2048",
        "--checkpointing", "full",
    ],
    "gpt2-bf16": ["openai-community/gpt2", *_TRAIN, "--precision", "bf16-mixed", "-b", "8", "-s", "1024"],
    "gpt2-compiled": [
        "openai-community/gpt2", *_TRAIN, "--precision", "bf16-mixed", "-b", "8", "-s", "1024",
        "--set", "run.compile=true",
    ],
    "qwen3-0.6b-bf16": ["Qwen/Qwen3-0.6B", *_TRAIN, "--precision", "bf16-mixed", "-b", "2", "-s", "1024"],
    "bert-base-fp32": ["google-bert/bert-base-uncased", *_TRAIN, "--precision", "fp32", "-b", "32", "-s", "128"],
    "t5-small-bf16": ["google-t5/t5-small", *_TRAIN, "--precision", "bf16-mixed", "-b", "16", "-s", "512"],
    "llama-1b-compiled": [
        *_LLAMA, *_TRAIN, "--precision", "bf16", "-b", "2", "-s", "1024", "--set", "run.compile=true",
    ],
    "bert-base-compiled": [
        "google-bert/bert-base-uncased", *_TRAIN, "--precision", "bf16-mixed", "-b", "32", "-s", "128",
        "--set", "run.compile=true",
    ],
    "opt-125m-compiled": [
        "facebook/opt-125m", *_TRAIN, "--precision", "bf16-mixed", "-b", "8", "-s", "512", "--set", "run.compile=true",
    ],
    "resnet50-fp16": ["resnet50", "--train", "--precision", "fp16-mixed", "-b", "64", "--optimizer", "momentum"],
}  # fmt: skip
"""What `vramtui estimate` is asked for the same job, without the card."""


if __name__ == "__main__":
    JOBS[sys.argv[1]]()
