"""Data made up for public scripts: random bytes in the formats that they read. Nothing is downloaded."""

import gzip
import importlib
import json
import pickle
import random
import string
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.scripts import models


def token_bins(folder: Path) -> None:
    """NanoGPT's data/made: train.bin, val.bin of 16-bit tokens."""
    made = folder / "data" / "made"
    made.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0)
    for name in ("train", "val"):
        numbers.integers(0, 50257, 400_000, dtype=np.uint16).tofile(made / f"{name}.bin")


def llmc_bins(folder: Path) -> None:
    """llm.c's token files: a header of 256 integers, then 16-bit tokens."""
    made = folder / "dev" / "data" / "made"
    made.mkdir(parents=True, exist_ok=True)
    tokens = np.random.default_rng(0).integers(0, 50257, 200_000, dtype=np.uint16)
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, tokens.size
    for name in ("train", "val"):
        with (made / f"{name}.bin").open("wb") as file:
            file.write(header.tobytes())
            file.write(tokens.tobytes())


def text_file(folder: Path) -> None:
    """`input.txt` of minGPT."""
    letters = random.Random(0)
    (folder / "projects" / "chargpt" / "input.txt").write_text(
        "".join(letters.choice(string.printable) for _ in range(200_000)), encoding="utf-8"
    )


def ddp_text(folder: Path) -> None:
    """The text of minGPT-ddp's own configuration."""
    letters = random.Random(0)
    text = "".join(letters.choice(string.ascii_letters) for _ in range(100_000))
    (folder / "distributed" / "minGPT-ddp" / "mingpt" / "data" / "input.txt").write_text(text, encoding="utf-8")


def wikitext(folder: Path) -> None:
    """word_language_model's data/wikitext-2: lines of words out of 2,000."""
    made = folder / "word_language_model" / "data" / "wikitext-2"
    made.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    for name, lines in (("train", 1000), ("valid", 100), ("test", 100)):
        text = "\n".join(" ".join(f"w{words.randrange(2000)}" for _ in range(25)) for _ in range(lines))
        (made / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


def mnist(folder: Path) -> None:
    """MNIST in the idx format, where each of the examples looks for it."""
    pixels = np.random.default_rng(0)
    for root in (
        folder / "data",
        folder / "data" / "mnist",
        folder / "Datasets",
        folder.parent / "data",
        *(child / "data" for child in folder.iterdir()),
    ):
        if root.parent.is_dir() and not root.parent.name.startswith("."):
            _mnist_at(root / "MNIST" / "raw", pixels)


def _mnist_at(raw: Path, pixels: np.random.Generator) -> None:
    if (raw / "t10k-labels-idx1-ubyte").exists():
        return
    raw.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 60000), ("t10k", 10000)):
        images = pixels.integers(0, 255, (count, 28, 28), dtype=np.uint8)
        labels = pixels.integers(0, 10, count, dtype=np.uint8)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def image_folder(folder: Path) -> None:
    """made/train and made/val: 4 classes of 64 random JPEGs."""
    if (folder / "made" / "val").exists():
        return
    image = importlib.import_module("PIL.Image")
    pixels = np.random.default_rng(0)
    for part in ("train", "val"):
        for label in range(4):
            made = folder / "made" / part / f"class{label}"
            made.mkdir(parents=True, exist_ok=True)
            for number in range(64):
                image.fromarray(pixels.integers(0, 255, (256, 256, 3), dtype=np.uint8)).save(made / f"{number}.jpg")


def masks(folder: Path) -> None:
    """Pytorch-UNet's data/imgs and data/masks."""
    image = importlib.import_module("PIL.Image")
    pixels = np.random.default_rng(0)
    for name, shape, most in (("imgs", (320, 480, 3), 255), ("masks", (320, 480), 1)):
        made = folder / "data" / name
        made.mkdir(parents=True, exist_ok=True)
        for number in range(24):
            picture = image.fromarray(pixels.integers(0, most, shape, dtype=np.uint8, endpoint=True))
            picture.save(made / f"{number:03d}{'_mask' if name == 'masks' else ''}.png")


def enwik8(folder: Path) -> None:
    """data/enwik8.gz: 95 MB of random letters, packed."""
    made = folder / "data" / "enwik8.gz"
    if not made.exists():
        made.write_bytes(
            gzip.compress(np.random.default_rng(0).integers(32, 126, 95_000_000, dtype=np.uint8).tobytes(), 1)
        )


def diffusion_images(folder: Path) -> None:
    """Random pictures, with and without words to them, and a small pipeline."""
    image_folder(folder)
    models.stable_diffusion(folder)
    words = random.Random(0)
    lines = [
        json.dumps({"file_name": f"class{label}/{number}.jpg", "text": models.sentence(words, 10)})
        for label in range(4)
        for number in range(64)
    ]
    (folder / "made" / "train" / "metadata.jsonl").write_text("\n".join(lines), encoding="utf-8")


def image_classifier(folder: Path) -> None:
    """Random pictures, a ViT-B/16 with random weights, and the metric that its trainer asks for."""
    image_folder(folder)
    models.vision_transformer(folder)


def latent_images(folder: Path) -> None:
    """Random pictures, and the autoencoder that DiT loads by its name."""
    image_folder(folder)
    models.autoencoder(folder)


def cifar10(folder: Path) -> None:
    """CIFAR-10's pickled batches."""
    made = folder / "data" / "cifar-10-batches-py"
    made.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        batch = {
            "data": pixels.integers(0, 255, (1000, 3072), dtype=np.uint8),
            "labels": [int(i) for i in pixels.integers(0, 10, 1000)],
        }
        (made / name).write_bytes(pickle.dumps(batch))


def cora(folder: Path) -> None:
    """Planetoid's raw files of Cora: 2,708 papers of 1,433 words, each quoting two others."""
    made = folder / "data" / "Planetoid" / "Cora" / "raw"
    if (made / "ind.cora.test.index").exists():
        return
    made.mkdir(parents=True, exist_ok=True)
    sparse, numbers, papers, words = importlib.import_module("scipy.sparse"), np.random.default_rng(0), 2708, 1433
    for name, count in (("", 140), ("t", 1000), ("all", 1708)):
        features = sparse.random(count, words, density=0.0127, format="csr", dtype=np.float32, rng=0)
        (made / f"ind.cora.{name}x").write_bytes(pickle.dumps(features))
        (made / f"ind.cora.{name}y").write_bytes(pickle.dumps(np.eye(7, dtype=np.int32)[numbers.integers(0, 7, count)]))
    quoted = {paper: [int(other) for other in numbers.integers(0, papers, 2)] for paper in range(papers)}
    (made / "ind.cora.graph").write_bytes(pickle.dumps(quoted))
    lines = "".join(f"{paper}\n" for paper in range(1708, papers))
    (made / "ind.cora.test.index").write_text(lines, encoding="utf-8")


def nothing(_folder: Path) -> None:
    """The script makes its own data."""


MAKERS: dict[str, Callable[[Path], None]] = {
    "token_bins": token_bins,
    "llmc_bins": llmc_bins,
    "text_file": text_file,
    "ddp_text": ddp_text,
    "wikitext": wikitext,
    "mnist": mnist,
    "image_folder": image_folder,
    "cifar10": cifar10,
    "masks": masks,
    "enwik8": enwik8,
    "bert": models.bert,
    "cora": cora,
    "language_models": models.language_models,
    "question_answers": models.question_answers,
    "translations": models.translations,
    "image_classifier": image_classifier,
    "latent_images": latent_images,
    "diffusion_images": diffusion_images,
    "": nothing,
}
