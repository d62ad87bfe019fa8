"""The jobs that say by how much compiled training differs from eager training.

Public models by their configs, cut to six blocks; each is run as it is and under `torch.compile`. What a job is stands
in `stated_jobs.py`.
"""

from collections.abc import Iterator
from typing import Any

from tests.recorded.stated_jobs import DECODERS, ENCODERS, UNETS, Job, shortened

BF16 = {"precision": "bf16", "optimizer": "adamw", "attention": "flash"}
MIXED = {"precision": "bf16-mixed", "optimizer": "adamw", "attention": "flash"}
TEXT = {"batch_size": 4, "sequence_length": 512}
SHORT = {"batch_size": 8, "sequence_length": 256}
IMAGES = {"batch_size": 16}
# kind, family, what it is trained on
MODELS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("decoder train", "pythia-410m", TEXT),
    ("decoder train", "opt-125m", TEXT),
    ("decoder train", "qwen2.5-0.5b", TEXT),
    ("decoder train", "smollm2-135m", TEXT),
    ("decoder train", "tinyllama-1.1b", SHORT),
    ("encoder", "roberta-base", SHORT),
    ("encoder", "bert-classes", SHORT),
    ("encoder", "vit-base", IMAGES),
    ("conv net", "resnet50", {"batch_size": 32}),
    ("unet", "small-sd", {"batch_size": 2}),
)


def compiled_jobs() -> Iterator[Job]:
    """Each model in bf16 and under autocast, eager and compiled."""
    tables = {"decoder train": DECODERS, "encoder": ENCODERS}
    for way in (BF16, MIXED):
        for kind, family, sizes in MODELS:
            job: Job = {"kind": kind, "family": family, "device": "H200"}
            if kind in tables:
                model_type, architecture, config = tables[kind][family]
                job["config"] = {"model_type": model_type, "architectures": [architecture], **shortened(config)}
            elif kind == "unet":
                job["config"] = UNETS[family]
            run = {"kind": "train"} | way | sizes
            if kind == "conv net":
                del run["attention"]
            yield job | {"run": run}
            yield job | {"run": run | {"compile": True}}
