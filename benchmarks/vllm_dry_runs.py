"""vLLM 0.19 on emulated H100s beside what it wrote at its start on real ones: `vllm_dry_runs.py VLLM [ROW …]`.

VLLM is the command of an environment with `pip install vllm==0.19.0` (torch 2.10.0, CUDA 12.8; 10 GB). ROW counts the
31 public logs of `tests/golden/serving/vllm_h100.csv` from 0; without any, those that were not held yet are. Each is
`vramtui dry-run --gpu H100 vllm serve FOLDER` with a log's flags, FOLDER holding the model's public config.json and no
weights, which are made up; so are the files of the processor of those that see, with the sizes and the places of tokens
that their configs have (how many tokens an image takes does not hang on words). What it says is kept in
`tests/golden/serving/vllm_dry_runs.json`; a table is printed.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SERVING = ROOT / "tests" / "golden" / "serving"
KEPT = SERVING / "vllm_dry_runs.json"
SAID = {
    "weights_gib": re.compile(r"Model loading took ([\d.]+) GiB"),
    "kv_gib": re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
    "kv_tokens": re.compile(r"GPU KV cache size: ([\d,]+) tokens"),
}
# FlashInfer compiles its sampler for minutes; none of these models needs it.
ENVIRONMENT = {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
FIRST_PORT = 18000
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


PROCESSORS = {"gemma3": write_gemma3_processor, "mistral3": write_mistral3_processor}


def served(vllm: str, row: int, log: dict[str, str]) -> dict[str, float]:
    """What vLLM says of a start with the flags of `log`: GiB of weights and cache, and tokens; less where it failed."""
    config = json.loads((SERVING / "vllm_configs.json").read_text(encoding="utf-8"))[log["model"]]
    cards = int(log["tp"]) * int(log["pp"])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
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
        server = [vllm, "serve", folder]
        if config["model_type"] in PROCESSORS:
            PROCESSORS[config["model_type"]](Path(folder), config)
        else:
            server.append("--skip-tokenizer-init")
        server += [text for flag, value in flags.items() for text in (f"--{flag}", value)]
        command = [
            sys.executable,
            "-m",
            "vramtui",
            "dry-run",
            "--show-output",
            "--gpu",
            f"{cards}xH100",
            "--steps",
            "1",
            "--keep-files",
        ]
        path = f"{Path(vllm).parent}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(
            [*command, *server],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=os.environ | ENVIRONMENT | {"PATH": path},
        )
    found = {name: pattern.search(ran.stdout + ran.stderr) for name, pattern in SAID.items()}
    return {name: float(match[1].replace(",", "")) for name, match in found.items() if match is not None}


def print_table(kept: dict[str, dict[str, float]]) -> None:
    """Each held log beside its dry run."""
    print(f"{'':66} {'weights, GiB':>16} {'KV cache, GiB':>16} {'tokens':>22} {'error':>9}")
    for row, log in enumerate(logs()):
        found = kept.get(str(row), {})
        if "kv_tokens" not in found:
            continue
        name = f"{row:2} {log['model']} tp{log['tp']} pp{log['pp']} {log['context']} {log['dtype'][6:]}"
        weights = f"{log['weights_gib']} {found['weights_gib']:.2f}"
        cache = f"{log['kv_gib']} {found['kv_gib']:.2f}"
        tokens = f"{int(log['kv_tokens']):,} {int(found['kv_tokens']):,}"
        error = found["kv_tokens"] / int(log["kv_tokens"]) - 1
        print(f"{name:66} {weights:>16} {cache:>16} {tokens:>22} {error:>+9.3%}")


def main() -> None:
    """Run what is asked for, keep it, print all."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    asked.add_argument("vllm", nargs="?", help="without it the table of what is kept")
    asked.add_argument("rows", nargs="*", type=int)
    options = asked.parse_args()
    kept: dict[str, dict[str, float]] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    every = logs()
    rows = options.rows or [row for row in range(len(every)) if str(row) not in kept]
    configs = json.loads((SERVING / "vllm_configs.json").read_text(encoding="utf-8"))
    for row in rows if options.vllm else ():
        if every[row]["model"] not in configs:
            print(f"{row:2} {every[row]['model']}: its pictures' processor is not here", flush=True)
            continue
        kept[str(row)] = served(options.vllm, row, every[row])
        print(row, every[row]["model"], kept[str(row)], flush=True)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print_table(kept)


if __name__ == "__main__":
    main()
