"""Data made up for scripts that read tokens or tensors of their own formats: random, and nothing is downloaded."""

import importlib
import pickle
import random
import string
from pathlib import Path

import numpy as np

_VOCABULARY = 32768
_SPECIAL = ("bos", "user_start", "user_end", "assistant_start", "assistant_end", "python_start", "python_end",
            "output_start", "output_end")  # fmt: skip


def tiny_stories(folder: Path) -> None:
    """llama2.c's data/TinyStories_all_data: two shards of 16-bit tokens below 32,000."""
    made = folder / "data" / "TinyStories_all_data"
    made.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0)
    for shard in range(2):
        numbers.integers(0, 32000, 400_000, dtype=np.uint16).tofile(made / f"data{shard:02d}.bin")


def nanochat(folder: Path) -> None:
    """Nanochat's folder of intermediates: two parquet files of random words, and a tokenizer of 32,768 pieces, which
    are bytes and pairs of bytes.
    """
    made = folder / "made"
    if (made / "tokenizer" / "token_bytes.pt").exists():
        return
    (made / "tokenizer").mkdir(parents=True, exist_ok=True)
    (made / "base_data_climbmix").mkdir(exist_ok=True)
    letters = random.Random(0)
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    for shard in range(2):
        texts = ["".join(letters.choice(string.ascii_lowercase + " ") for _ in range(3000)) for _ in range(500)]
        table = arrow.table({"text": texts})
        parquet.write_table(table, made / "base_data_climbmix" / f"shard_{shard:05d}.parquet", row_group_size=100)
    ranks = {bytes([first]): first for first in range(256)}
    pairs = (bytes([first, second]) for first in range(256) for second in range(256))
    ranks |= {pair: 256 + place for place, pair in zip(range(_VOCABULARY - len(_SPECIAL) - 256), pairs, strict=False)}
    special = {f"<|{name}|>": len(ranks) + place for place, name in enumerate(_SPECIAL)}
    encoding = importlib.import_module("tiktoken").Encoding(
        name="made", pat_str=r"\w+|\s+|[^\w\s]+", mergeable_ranks=ranks, special_tokens=special
    )
    (made / "tokenizer" / "tokenizer.pkl").write_bytes(pickle.dumps(encoding))
    torch = importlib.import_module("torch")
    torch.save(torch.ones(_VOCABULARY, dtype=torch.int32), made / "tokenizer" / "token_bytes.pt")


def airbench(folder: Path) -> None:
    """cifar10/train.pt and test.pt of cifar10-airbench: random images and labels."""
    made = folder / "cifar10"
    made.mkdir(exist_ok=True)
    torch = importlib.import_module("torch")
    for name, count in (("train", 50_000), ("test", 10_000)):
        images = torch.randint(0, 255, (count, 32, 32, 3), dtype=torch.uint8)
        labels = torch.randint(0, 10, (count,))
        torch.save({"images": images, "labels": labels, "classes": list(string.digits)}, made / f"{name}.pt")
