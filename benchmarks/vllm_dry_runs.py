"""vLLM on simulated GPUs next to its start-up logs on real ones: `python -m benchmarks.vllm_dry_runs VLLM [ROW …]`.

VLLM is the command of an environment with `pip install vllm==0.19.0` (torch 2.10.0, CUDA 12.8; 10 GB). ROW counts the
31 public logs of `tests/golden/serving/vllm_h100.csv` from 0; without any, those that were not held yet are. Each is
`vramtui dry-run --gpu H100 vllm serve FOLDER` with a log's flags, FOLDER holding the model's public config.json and no
weights, which are made up; so are the files of the processor of those that see, with the sizes and the places of tokens
that their configs have (how many tokens an image takes does not hang on words). What it says is kept in
`tests/golden/serving/vllm_dry_runs.json`; a table is printed.

A name of OTHERS instead of a ROW is a case of `tests/cases/serving` on another GPU. VLLM should be of its release, or
of one that is like it; which one it was is kept with the figures.
"""

import argparse
import csv
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.recorded.cases import cases, figure

ROOT = Path(__file__).parents[1]
SERVING = ROOT / "tests" / "golden" / "serving"
KEPT = SERVING / "vllm_dry_runs.json"
SAID = {
    "weights_gib": re.compile(r"Model loading took ([\d.]+) GiB"),
    "kv_gib": re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
    "kv_tokens": re.compile(r"GPU KV cache size: ([\d,]+) tokens"),
}
DIGITS = {"weights_gib": 2, "kv_gib": 2, "kv_tokens": 0}
RELEASE = re.compile(r"version (\d+\.[\w.+]+)\s*$")  # in vLLM's banner
COUNTS_GRAPHS = (0, 21)  # the first release whose cache leaves room for the CUDA graphs (v1/worker/gpu_worker.py, 0.32)
# Flags of `vramtui estimate`: vLLM's names for them, and those that vLLM does not have.
FLAGS = {"--tp": "--tensor-parallel-size", "--kv-cache": "--kv-cache-dtype", "--precision": "--dtype"}
OF_ESTIMATES = {"--gpu", "--serve", "--engine-version", "--quant"}
DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
# FlashInfer compiles its sampler for minutes; none of these models needs it.
ENVIRONMENT = {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
FIRST_PORT = 18000
HUB_CONFIGS = ROOT / "vramtui" / "models" / "stores" / "hub_configs.json"
CONFIGS = {name: one["config"] for one in json.loads(HUB_CONFIGS.read_text(encoding="utf-8")) for name in one["names"]}
CONFIGS |= json.loads((SERVING / "vllm_configs.json").read_text(encoding="utf-8"))
CASES = {name: case for _, name, case in cases(["serving"])}
QWEN_7B = "Qwen/Qwen2.5-7B-Instruct"
HALF_B = {
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
# Qwen3.5-27B's config.json where it differs from the 9B's, and the modules that its release in fp8 leaves in bf16.
QWEN_27B = {
    "text_config": {
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "linear_num_value_heads": 48,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
    },
    "vision_config": {"out_hidden_size": 5120},
}
FP8 = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "model.language_model.embed_tokens"]
    + [f"model.language_model.layers.{layer}.linear_attn.in_proj_{name}" for layer in range(64) for name in "ab"]
    + [
        f"model.visual.blocks.{block}.{name}"
        for block in range(27)
        for name in ("attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2")
    ]
    + ["model.visual.merger.linear_fc1", "model.visual.merger.linear_fc2"],
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "data_type": "int"}
AUTO_ROUND |= {"packing_format": "auto_round:auto_gptq", "block_name_to_quantize": "model.language_model.layers"}
# By the case's name: the model whose config.json is taken, and what is different in the case's own.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "log-5090-qwen3.5-9b": ("Qwen/Qwen3.5-9B", {}),
    "log-5090-qwen3.5-9b-tp2": ("Qwen/Qwen3.5-9B", {}),
    "log-l4-qwen2.5-7b fp16": (QWEN_7B, {}),
    "log-l4-qwen2.5-7b fp16 graphs": (QWEN_7B, {}),
    "log-l4-qwen2.5-7b fp8": ("RedHatAI/Qwen2.5-7B-Instruct-fp8-dynamic", {}),
    "log-l4-qwen2.5-7b gptq": (QWEN_7B, {"torch_dtype": "float16", "quantization_config": GPTQ}),
    "log-4090-qwen2.5-0.5b": (QWEN_7B, HALF_B),
    "log-5060ti-qwen2.5-0.5b 4096": (QWEN_7B, HALF_B),
    "log-5060ti-qwen2.5-0.5b 512": (QWEN_7B, HALF_B),
    "log-rtx6000-qwen3.8-27b": ("Qwen/Qwen3.5-9B", QWEN_27B | {"quantization_config": FP8}),
    "talos-qwen3.8": ("Qwen/Qwen3.5-9B", QWEN_27B | {"quantization_config": FP8}),
    "club-3090-fast": ("Qwen/Qwen3.5-9B", QWEN_27B | {"quantization_config": AUTO_ROUND}),
    "club-3090-dual-max": ("Qwen/Qwen3.5-9B", QWEN_27B | {"quantization_config": FP8}),
    "club-3090-594": ("Qwen/Qwen3.5-9B", QWEN_27B | {"quantization_config": FP8}),
    "club-3090-642": ("Qwen/Qwen3.5-9B", QWEN_27B | {"quantization_config": AUTO_ROUND}),
    "log-4x3090-qwen3-vl-30b": ("Qwen/Qwen3-VL-30B-A3B-Instruct", {}),
    "log-4xa30-opt-2.7b": ("facebook/opt-2.7b", {}),
    "log-t4-qwen3-8b-awq": ("Qwen/Qwen3-8B-AWQ", {}),
    # vLLM 0.32 wants its whole share free once NCCL has begun, and 0.98 is not: these are weights of a start with 0.97.
    "vllm-13061": ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", {}),
}
IMAGE_TOKENS = {"boi_token": "start_of_image", "eoi_token": "end_of_image", "image_token": "image_soft_token"}


def logs() -> list[dict[str, str]]:
    """The rows of the public logs."""
    with (SERVING / "vllm_h100.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def write_gemma3_processor(folder: Path, config: dict[str, Any]) -> None:
    """A processor of Gemma 3 (transformers 4.57: processing_gemma3.py) that knows images and no word."""
    special = {
        "<pad>": 0,
        "<eos>": 1,
        "<bos>": 2,
        "<unk>": 3,
        "<start_of_image>": config["boi_token_index"],
        "<end_of_image>": config["eoi_token_index"],
        "<image_soft_token>": config["image_token_index"],
    }
    lines = {"\n" * lines: 106 + lines for lines in range(1, 5)}  # vLLM looks these up by their text
    side, tokens = config["vision_config"]["image_size"], config["mm_tokens_per_image"]
    write_tokenizer(folder, special, lines, {name: f"<{text}>" for name, text in IMAGE_TOKENS.items()})
    files = {
        "preprocessor_config.json": {
            "image_processor_type": "Gemma3ImageProcessor",
            "size": {"height": side, "width": side},
            "image_seq_length": tokens,
            "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
        },
        "processor_config.json": {"processor_class": "Gemma3Processor", "image_seq_length": tokens},
    }
    write_json(folder, files)


def write_mistral3_processor(folder: Path, config: dict[str, Any]) -> None:
    """A processor of Mistral Small 3.1 (transformers 4.57: processing_pixtral.py) that knows images and no word."""
    special = {"<unk>": 0, "<bos>": 1, "<eos>": 2, "[IMG]": config["image_token_index"], "<pad>": 11}
    write_tokenizer(folder, special | {"[IMG_BREAK]": 12, "[IMG_END]": 13}, {}, {})
    vision = config["vision_config"]
    files = {
        "preprocessor_config.json": {
            "image_processor_type": "PixtralImageProcessor",
            "size": {"longest_edge": vision["image_size"]},
            "patch_size": {"height": vision["patch_size"], "width": vision["patch_size"]},
        },
        "processor_config.json": {
            "processor_class": "PixtralProcessor",
            "patch_size": vision["patch_size"],
            "spatial_merge_size": config["spatial_merge_size"],
        },
    }
    write_json(folder, files)


def write_tokenizer(folder: Path, special: dict[str, int], named: dict[str, int], images: dict[str, str]) -> None:
    """A tokenizer that knows these words alone.

    Args:
        folder: where its files go.
        special: the places of the special tokens.
        named: those of words that are looked up by their text.
        images: what the tokenizer's keys for images stand for.
    """
    named = special | named
    taken, top = set(named.values()), max(named.values())
    others = {f"<{at}>": at for at in range(top) if at not in taken}
    added = [
        {"id": at, "content": text, "special": text in special}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for text, at in sorted(named.items(), key=lambda one: one[1])
    ]
    places = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    words = {"type": "WordLevel", "vocab": named | others, "unk_token": "<unk>"}
    files = {
        "tokenizer.json": {"version": "1.0", "added_tokens": added, "model": words, **places},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "extra_special_tokens": images,
            **{f"{name}_token": f"<{name}>" for name in ("pad", "eos", "bos", "unk")},
        },
    }
    write_json(folder, files)


def write_json(folder: Path, files: Mapping[str, object]) -> None:
    """Each of `files` under its name."""
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def write_qwen3_5_processor(folder: Path, config: dict[str, Any]) -> None:
    """A processor of Qwen 3.5, and its config with what the tables here leave out."""
    rope = {"mrope_interleaved": True, "rope_type": "default", "rope_theta": 10_000_000}
    rope |= {"mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25}
    write_qwen_processor(folder, config, 248044, {"rope_parameters": rope})


def write_qwen3_vl_processor(folder: Path, config: dict[str, Any]) -> None:
    """A processor of Qwen 3 VL, and its config with what the tables here leave out."""
    rope = {"mrope_interleaved": True, "rope_type": "default", "mrope_section": [24, 20, 20]}
    write_qwen_processor(folder, config, 151643, {"rope_scaling": rope, "rope_theta": 5_000_000})


def write_qwen_processor(folder: Path, config: dict[str, Any], first: int, more: dict[str, Any]) -> None:
    """A processor (transformers 4.57: processing_qwen3_vl.py) that knows images, videos and no word.

    Args:
        folder: where its files go.
        config: the model's, to which the places of tokens are added.
        first: the place of the first special token, which ends a text.
        more: of its text model's config.
    """
    places = {"vision_start": first + 9, "vision_end": first + 10, "image": first + 12, "video": first + 13}
    config |= {f"{name}_token_id": place for name, place in places.items()}
    config["vision_config"]["model_type"] = config["model_type"]
    config["text_config"] |= {"eos_token_id": first, **more}
    words = {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>"}
    words |= {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    special = {"<unk>": 0, "<bos>": 1, "<pad>": 2, "<eos>": first}
    write_tokenizer(folder, special | {words[name]: place for name, place in places.items()}, {}, {})
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    sees = {
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    sees["processor_class"] = "Qwen3VLProcessor"
    images = {"longest_edge": 16_777_216, "shortest_edge": 65_536}
    videos = {"longest_edge": 25_165_824, "shortest_edge": 4_096}
    files = {
        "config.json": config,
        "tokenizer_config.json": settings | {"tokenizer_class": "Qwen2TokenizerFast"},
        "preprocessor_config.json": sees | {"size": images, "image_processor_type": "Qwen2VLImageProcessorFast"},
        "video_preprocessor_config.json": sees | {"size": videos, "video_processor_type": "Qwen3VLVideoProcessor"},
    }
    write_json(folder, files)


PROCESSORS = {
    "gemma3": write_gemma3_processor,
    "mistral3": write_mistral3_processor,
    "qwen3_5": write_qwen3_5_processor,
    "qwen3_vl_moe": write_qwen3_vl_processor,
}


def served(vllm: str, row: int, log: dict[str, str]) -> dict[str, Any]:
    """Start vLLM with the flags of `log`; return its GiB of weights and cache, and tokens; less where it failed."""
    flags = {
        "max-model-len": log["context"],
        "gpu-memory-utilization": log["utilization"],
        "dtype": log["dtype"].removeprefix("torch."),
        "tensor-parallel-size": log["tp"],
        "pipeline-parallel-size": log["pp"],
        "kv-cache-dtype": log["kv_dtype"],
        "port": str(FIRST_PORT + row),
    }
    if log["quantization"] == "fp8":  # the others' configs say theirs
        flags["quantization"] = "fp8"
    given = [text for flag, value in flags.items() for text in (f"--{flag}", value)]
    return started(vllm, f"{int(log['tp']) * int(log['pp'])}xH100", CONFIGS[log["model"]], given, {})


def served_case(vllm: str, name: str) -> dict[str, Any]:
    """Start vLLM on the GPUs of a case and with its flags; return the figures it printed."""
    words = shlex.split(CASES[name]["command"])
    at = words.index("--") if "--" in words else len(words)
    told, server = dict(itertools.pairwise(words[:at])), words[at + 1 :]
    flags = server[3:]
    if not server:  # `estimate MODEL --serve vllm --tp 2 …`
        own = ((flag, value) for flag, value in zip(words[3::2], words[4::2], strict=True) if flag not in OF_ESTIMATES)
        flags = [DTYPES.get(word, FLAGS.get(word, word)) for pair in own for word in pair]
    if "--reasoning-parser" in flags:  # it looks up words that the made-up tokenizer does not have
        at = flags.index("--reasoning-parser")
        del flags[at : at + 2]
    gpus = flags[flags.index("--tensor-parallel-size") + 1] if "--tensor-parallel-size" in flags else "1"
    model, more = OTHERS[name]
    environment: dict[str, str] = {}
    release = tuple(map(int, told.get("--engine-version", "99.0").split(".")[:2]))
    if release < COUNTS_GRAPHS:
        environment["VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"] = "0"
    return started(vllm, f"{gpus}x{told['--gpu']}", merged(CONFIGS[model], more), flags, environment)


def merged(config: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`config` with the values of `more`, at any depth."""
    both = ((key, value, config.get(key)) for key, value in more.items())
    return config | {key: merged(old, new) if isinstance(old, dict) else new for key, new, old in both}


def started(
    vllm: str, gpu: str, config: dict[str, Any], flags: list[str], environment: dict[str, str]
) -> dict[str, Any]:
    """Start vLLM with a model of this config and made-up weights; return the figures it printed, and end it."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = [vllm, "serve", folder]
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        if config["model_type"] in PROCESSORS:
            PROCESSORS[config["model_type"]](Path(folder), config)
        else:
            server.append("--skip-tokenizer-init")
        dry_run = [sys.executable, "-m", "vramtui", "dry-run", "--show-output", "--steps", "1", "--keep-files"]
        path = f"{Path(vllm).parent}{os.pathsep}{os.environ['PATH']}"
        with subprocess.Popen(
            [*dry_run, "--gpu", gpu, *server, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=os.environ | ENVIRONMENT | environment | {"PATH": path},
        ) as ran:
            for line in ran.stdout or ():
                if match := RELEASE.search(line):
                    found["vllm"] = match[1]
                for name, pattern in SAID.items():
                    if match := pattern.search(line):
                        found[name] = float(match[1].replace(",", ""))
                if found.keys() >= SAID.keys():
                    ran.terminate()
                    break
    return found


def print_table(kept: dict[str, dict[str, Any]]) -> None:
    """Each log that was compared, next to its dry run: figures of both, and how far off tokens, else the cache, are."""
    print(f"{'':66} {'weights, GiB':>16} {'KV cache, GiB':>16} {'tokens':>22} {'error':>9}")
    truths: dict[str, tuple[str, dict[str, float]]] = {}
    for row, log in enumerate(logs()):
        name = f"{row:2} {log['model']} tp{log['tp']} pp{log['pp']} {log['context']} {log['dtype'][6:]}"
        truths[str(row)] = name, {which: float(log[which]) for which in SAID}
    for name in OTHERS:
        truth = CASES[name]["truth"]
        sizes = {key: figure(truth[key]) / 2**30 for key in ("weights", "kv_cache") if key in truth}
        own = {
            "weights_gib": sizes.get("weights"),
            "kv_gib": sizes.get("kv_cache"),
            "kv_tokens": truth.get("kv_tokens"),
        }
        truths[name] = name, {key: value for key, value in own.items() if value is not None}
    for key, (name, truth) in truths.items():
        found = kept.get(key, {})
        both = [which for which in SAID if which in found and which in truth]
        said = {which: f"{truth[which]:,.{DIGITS[which]}f} {found[which]:,.{DIGITS[which]}f}" for which in both}
        if both:
            weights, cache, tokens = (said.get(which, "") for which in SAID)
            error = f"{found[both[-1]] / truth[both[-1]] - 1:+.3%}"
            print(f"{name:66} {weights:>16} {cache:>16} {tokens:>22} {error:>9} {found.get('vllm', '')}".rstrip())


def main() -> None:
    """Run what is asked for, keep it, print all."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("vllm", nargs="?", help="without it the table of what is kept")
    asked.add_argument("rows", nargs="*", help="numbers of the logs on H100s, or names of cases")
    options = asked.parse_args()
    kept: dict[str, dict[str, Any]] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    every = logs()
    rows = options.rows or [str(row) for row in range(len(every)) if str(row) not in kept]
    for row in rows if options.vllm else ():
        log = every[int(row)] if row.isdecimal() else None
        if log is not None and log["model"] not in CONFIGS:
            print(f"{row:2} {log['model']}: its pictures' processor is not here", flush=True)
            continue
        kept[row] = served(options.vllm, int(row), log) if log is not None else served_case(options.vllm, row)
        print(row, kept[row], flush=True)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print_table(kept)


if __name__ == "__main__":
    main()
