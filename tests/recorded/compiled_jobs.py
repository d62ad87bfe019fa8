"""The jobs that say by how much compiled training differs from eager training, and those that compiled estimates are
held to.

Public models by their configs, cut to six blocks; each is run as it is and under `torch.compile`. What a job is stands
in `stated_jobs.py`.
"""

from collections.abc import Iterator
from typing import Any

from tests.recorded.stated_jobs import DECODERS, ENCODERS, Job, shortened

BF16 = {"precision": "bf16", "optimizer": "adamw", "attention": "flash"}
MIXED = {"precision": "bf16-mixed", "optimizer": "adamw", "attention": "flash"}
TEXT = {"batch_size": 4, "sequence_length": 512}
SHORT = {"batch_size": 8, "sequence_length": 256}
IMAGES = {"batch_size": 16}
# kind, and what it is trained on
MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("decoder train", sizes) for sizes in (TEXT, TEXT, TEXT, TEXT, SHORT)),
    *(("encoder", sizes) for sizes in (SHORT, SHORT, IMAGES)),
    ("conv net", {"batch_size": 32}),
    ("unet", {"batch_size": 2}),
)


def compiled_runs() -> Iterator[Job]:
    """The run of each model in bf16 and under autocast, eager and compiled."""
    for way in (BF16, MIXED):
        for kind, sizes in MODELS:
            run = {"kind": "train"} | way | sizes
            if kind == "conv net":
                del run["attention"]
            yield run
            yield run | {"compile": True}


GPT2 = (
    "gpt2",
    "GPT2LMHeadModel",
    {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024},
)
FEW_BLOCKS = 3
SIZES = (TEXT, SHORT, {"batch_size": 2, "sequence_length": 1024})
# Twice the same shape in another size; and what dynamo cuts into many graphs.
LEFT_OUT = frozenset({
    "pythia-1.4b", "opt-1.3b", "phi-2", "stablelm-3b", "vit-large-384", "olmoe-a1b", "deberta-v3-base", "convnext-tiny",
})  # fmt: skip


def fused_jobs() -> Iterator[Job]:
    """GPT-2, and every decoder and encoder of the stated jobs once, under autocast and in bf16, in sizes by turns.

    They were written down before any was run. `tests/golden/compiled.json` has the peaks of allocated of each that ran,
    without Triton's kernels, so that nothing is tuned; reserved memory depends on that and is not in it.
    """
    count = 0
    for way in (MIXED, BF16):
        for kind, table in (("decoder train", {"gpt2": GPT2} | DECODERS), ("encoder", ENCODERS)):
            for family, (model_type, architecture, config) in table.items():
                if family in LEFT_OUT:
                    continue
                count += 1
                sizes = IMAGES if "image" in architecture.lower() else SIZES[count % 3]
                yield {
                    "name": f"{family} {way['precision']}",
                    "kind": kind,
                    "family": family,
                    "device": "H200",
                    "config": {"model_type": model_type, "architectures": [architecture]}
                    | shortened(config, FEW_BLOCKS),
                    "run": {"kind": "train", "compile": True} | way | sizes,
                }


EVERY, BLOCKS, SAMPLES, TOKENS = 3, 2, 3, 384


def held_out_jobs() -> Iterator[Job]:
    """Compiled runs that no rule was looked at with: every third family of `fused_jobs`, in sizes that are in none of
    these, under autocast and in bf16 by turns. `tests/golden/compiled_held_out.json` has those that ran.
    """
    families = {job["family"]: job for job in fused_jobs()}
    for at, (family, job) in enumerate(list(families.items())[::EVERY]):
        way = (MIXED, BF16)[at % 2]
        config = {key: BLOCKS if value == FEW_BLOCKS else value for key, value in job["config"].items()}
        sizes = {"batch_size": SAMPLES} | ({} if "image_size" in config else {"sequence_length": TOKENS})
        run = {"kind": "train", "compile": True} | way | sizes
        yield job | {"name": f"{family} {way['precision']}", "config": config, "run": run}
