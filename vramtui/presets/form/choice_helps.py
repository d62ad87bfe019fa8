"""What each choice of a key means, in a few words: types have no docstrings for their values."""

from collections.abc import Mapping, Sequence

_TYPES = {
    "fp64": "8 bytes a number",
    "fp32": "4 bytes a number",
    "tf32": "4 bytes a number; products in TF32 on Ampere and newer",
    "bf16": "2 bytes a number, the range of fp32",
    "fp16": "2 bytes a number",
    "fp8": "1 byte a number",
    "int64": "8 bytes a number",
    "int8": "1 byte a number",
    "int4": "half a byte a number",
    "bool": "1 byte a number",
}
_RECOMPUTED = {
    "none": "every activation is kept for the backward pass",
    "full": "whole blocks are run again: only their inputs are kept",
    "selective": "only the attention's scores are made again",
}
_POSITIONS = {
    "learned": "a table of parameters, as in GPT-2",
    "rope": "rotary: no parameters",
    "sinusoidal": "a constant table: no parameters, but memory",
    "none": "no positions, or none that take memory",
}
_OPTIMIZERS = {
    "sgd": "no state",
    "momentum": "SGD with momentum: one state a parameter",
    "adam": "two states a parameter",
    "adamw": "two states a parameter, 8 bytes in fp32",
    "amsgrad": "Adam with a running maximum: three states a parameter",
    "rmsprop": "one state a parameter",
    "adagrad": "one state a parameter, made when it is built",
    "adafactor": "rows and columns of the second moment only: very little state",
    "lion": "one state a parameter",
    "muon": "one momentum for matrices; AdamW for all else",
    "adamw_8bit": "bitsandbytes: two states of one byte a parameter",
    "paged_adamw_32bit": "bitsandbytes: two fp32 states in unified memory, which the host can take over",
    "paged_adamw_8bit": "bitsandbytes: two states of one byte in unified memory",
}
_QUANTIZED = {
    "int8": "LLM.int8(), or 8 bits by GPTQ and the like: 1 byte a weight",
    "int4": "AWQ, GPTQ: 4 bits a weight and a scale for each group",
    "nf4": "bitsandbytes NF4: 4 bits a weight and a scale for 64 (QLoRA)",
    "nf4-double": "NF4 whose scales are quantized again: 4.13 bits a weight",
    "fp8": "1 byte a weight",
    "mxfp4": "4 bits a weight and one byte for 32 (gpt-oss)",
    "nvfp4": "4 bits a weight and one byte for 16 (Blackwell)",
    "q2_k": "llama.cpp: 2.63 bits a weight",
    "q3_k": "llama.cpp: 3.44 bits a weight",
    "q4_0": "llama.cpp: 4.5 bits a weight",
    "q4_1": "llama.cpp: 5 bits a weight",
    "q4_k": "llama.cpp: 4.5 bits a weight",
    "q5_0": "llama.cpp: 5.5 bits a weight",
    "q5_1": "llama.cpp: 6 bits a weight",
    "q5_k": "llama.cpp: 5.5 bits a weight",
    "q6_k": "llama.cpp: 6.56 bits a weight",
    "q8_0": "llama.cpp: 8.5 bits a weight",
    "iq4_xs": "llama.cpp: 4.25 bits a weight",
    "q3_k_m": "llama.cpp's mixture around 3 bits",
    "q4_k_m": "llama.cpp's mixture around 4 bits: the usual download",
    "q5_k_m": "llama.cpp's mixture around 5 bits",
}
CHOICE_HELPS: Mapping[str, Mapping[str, str]] = {
    "precision": {
        "fp32": "everything in 4 bytes; no tensor cores",
        "tf32": "everything in 4 bytes; products in TF32 on Ampere and newer",
        "bf16-mixed": "autocast: fp32 weights, gradients and states; products in bf16",
        "fp16-mixed": "autocast: fp32 weights, gradients and states; products in fp16, with a GradScaler",
        "fp8-mixed": "fp32 weights; products in fp8 on Hopper and newer",
        "bf16": "weights, gradients and states in bf16: 2 bytes each",
        "fp16": "weights, gradients and states in fp16: 2 bytes each",
        "bf16-master": "bf16 weights and gradients; the optimizer keeps fp32 copies",
        "fp16-master": "fp16 weights and gradients; the optimizer keeps fp32 copies",
    },
    "optimizer": _OPTIMIZERS,
    "optimizer_implementation": {
        "foreach": "all tensors at once: fastest without fused, temporaries of a whole state",
        "fused": "one kernel for all: no temporaries",
        "loop": "one tensor after another: temporaries of one tensor",
    },
    "attention": {
        "eager": "spelt out: the scores of every head are kept, quadratic in the length",
        "flash": "FlashAttention: no scores, linear in the length",
        "efficient": "memory-efficient kernel of xformers: no scores; also fp32 and older cards",
        "cudnn": "cuDNN's fused kernel: no scores",
    },
    "module_loading": {
        "lazy": "when first used: the default since CUDA 11.7 and PyTorch 1.13",
        "eager": "all at the start (CUDA_MODULE_LOADING=EAGER, older CUDA): a context two to four times as large",
    },
    "checkpointing": _RECOMPUTED
    | {"selective-ops": "as torchtitan does: fused attention and every other linear layer's product are kept"},
    "recompute": _RECOMPUTED,
    "cross_entropy": {
        "full": "all logits at once, as transformers does",
        "chunked": "chunks of tokens, made again for the backward pass",
        "fused": "fused with the output layer (Liger, Apple's cut): logits are never whole",
    },
    "kv_cache": _TYPES,
    "dtype": _TYPES,
    "cache_implementation": {
        "dynamic": "grows by concatenation with each token",
        "static": "allocated for the whole length at once",
    },
    "quantization": _QUANTIZED,
    "engine": {
        "vllm": "takes a share of the card",
        "llama.cpp": "takes what model and context need",
        "sglang": "weights and pool take a share of the card",
        "tensorrt-llm": "the pool takes a share of what is free",
    },
    "offload": {
        "none": "all parts of a pipeline stay on the card",
        "model": "one part at a time (enable_model_cpu_offload); in training encoders and VAE are off the card",
        "sequential": "one layer at a time (enable_sequential_cpu_offload): slow, and the least memory",
    },
    "design": {
        "flux": "blocks of two streams, then of one",
        "sd3": "blocks of two streams, positions from a table",
        "qwen-image": "blocks of two streams, rotary positions",
        "wan": "self-attention over a video, cross-attention to the text",
        "images": "2D convolutions: AutoencoderKL",
        "video": "causal 3D convolutions, a frame of latents at a time",
    },
    "strategy": {
        "ddp": "every GPU holds everything; gradients are averaged",
        "zero": "DeepSpeed: shares what zero_stage says",
        "fsdp": "FSDP2: shares weights, gradients and states as zero_stage says",
    },
    "implementation": {
        "huggingface": "transformers' modelling code",
        "plain": "torch's fused norms and activations, as nanoGPT",
    },
    "basis": {
        "shapes": "every operator follows from the shapes: exact",
        "family": "tensors and caches exact, activations those of the nearest decoder",
        "generic": "read from the usual keys: roughly",
    },
    "norm": {
        "layernorm": "weight and bias",
        "rmsnorm": "a weight, no bias",
        "gemma_rmsnorm": "a weight that multiplies in fp32",
        "batch": "over the batch, for each channel",
        "group": "over groups of channels",
        "layer": "over the last dimension",
        "layer2d": "a layer norm over the channels of (channels, height, width), as in ConvNeXt",
        "rms": "over the last dimension, without a mean",
        "manual": "a layer norm in single operators: mean, variance, quotient, scale, shift",
    },
    "act": {
        "relu": "keeps its output",
        "gelu": "keeps its input",
        "silu": "keeps its input",
        "sigmoid": "keeps its output",
        "tanh": "keeps its output",
        "leaky_relu": "keeps its input",
        "softmax": "keeps its output",
        "relu6": "keeps its input; in place, a copy of it",
        "hardswish": "keeps its input; in place, a copy of it",
        "hardsigmoid": "keeps its input; in place, a copy of it",
    },
    "how": {
        "add": "keeps nothing",
        "multiply": "keeps both",
        "concat": "their channels, one after the other: a new tensor",
    },
    "channels": {
        "first": "(channels, height, width)",
        "last": "(height, width, channels)",
    },
    "pool": {
        "max": "keeps its input and the places of the maxima, 8 bytes each",
        "avg": "keeps its input",
        "global": "one number for each channel",
        "adaptive": "averages to as many rows and columns as kernel_size says",
    },
    "loss": {
        "cross_entropy": "over classes in the last dimension",
        "mse": "against a target of the output's shape",
        "sum": "the sum of the output",
    },
    "position": _POSITIONS,
    "hidden_act": {
        "gelu": "exact GELU",
        "gelu_new": "GPT-2's GELU, spelt out in single operators",
        "gelu_pytorch_tanh": "torch's GELU with tanh, one operator",
        "quick_gelu": "CLIP's GELU: two operators",
        "relu": "ReLU",
        "silu": "SiLU (Swish), as in Llama",
    },
    "block": {"basic": "two 3x3 convolutions", "bottleneck": "1x1, 3x3 and 1x1 with four times the channels"},
    "cell": {
        "lstm": "four gates, and a cell beside the state",
        "gru": "three gates",
        "rnn_tanh": "one product and tanh",
        "rnn_relu": "one product and ReLU",
    },
    "output": {"sequence": "the states of all steps go on", "last": "the last step's state alone goes on"},
    "head": {"mlm": "predicts words, as BERT", "classes": "num_labels outputs", "none": "ends with the last block"},
    "place": {"layers": "in the layers", "outside": "beside the layers", "tower": "in a tower for images or sound"},
    "formula": {"documented": "what DeepSpeed's pages print", "current": "what its code says since"},
    "mode": {"train": "a training step", "inference": "torch.inference_mode()"},
    "phase": {
        "inference": "weights alone",
        "full-fp16": "training with everything in fp16",
        "mixed": "training with mixed precision",
        "lora": "adapters beside frozen 16-bit weights",
        "qlora": "adapters beside 4-bit weights",
        "train": "a training step",
        "infer": "a forward pass",
    },
}


def choice_helps(name: str, choices: Sequence[str]) -> tuple[str, ...]:
    """A few words on each of the `choices` of the key called `name`; empty where there is nothing on one of them."""
    words = CHOICE_HELPS.get(name, {})
    return tuple(words[choice] for choice in choices) if choices and all(one in words for one in choices) else ()
