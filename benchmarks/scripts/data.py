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

from benchmarks.scripts import models, tokens


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
        folder / "examples" / "data",
        folder / "examples" / "mnist",
        folder / "TCN" / "mnist_pixel" / "data" / "mnist",
        *(child / "data" for child in folder.iterdir()),
    ):
        if root.parent.is_dir() and not root.parent.name.startswith("."):
            mnist_at(root / "MNIST" / "raw", pixels)


def mnist_at(raw: Path, pixels: np.random.Generator) -> None:
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
    """data/enwik8.gz, there or beside a script in examples/enwik8_simple: 95 MB of random letters, packed."""
    simple = folder / "examples" / "enwik8_simple"
    made = (simple if simple.is_dir() else folder) / "data" / "enwik8.gz"
    if not made.exists():
        made.parent.mkdir(exist_ok=True)
        made.write_bytes(
            gzip.compress(np.random.default_rng(0).integers(32, 126, 95_000_000, dtype=np.uint8).tobytes(), 1)
        )


def neural_style(folder: Path) -> None:
    """made/style.jpg, a random picture, and VGG-16 with random weights where torch.hub looks for it."""
    image, torch = importlib.import_module("PIL.Image"), importlib.import_module("torch")
    weights = folder / "made" / "torch" / "hub" / "checkpoints" / "vgg16-397923af.pth"
    weights.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 255, (256, 256, 3), dtype=np.uint8)
    image.fromarray(pixels).save(folder / "made" / "style.jpg")
    torch.save(importlib.import_module("torchvision.models").vgg16().state_dict(), weights)


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


# The kinds by which torchvision knows Imagenette (`_WNID_TO_CLASS` of datasets/imagenette.py, torchvision 0.28).
IMAGENETTE = (
    "n01440764", "n02102040", "n02979186", "n03000684", "n03028079",
    "n03394916", "n03417042", "n03425413", "n03445777", "n03888257",
)  # fmt: skip
BELIEVED = """
import sys
from importlib.machinery import PathFinder

class Believed:
    def find_spec(self, name, path=None, target=None):
        if name != "torchvision.datasets.cifar":
            return None
        spec = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module
        def believed(module):
            run(module)
            module.check_integrity = lambda *_: True
        spec.loader.exec_module = believed
        return spec

sys.meta_path.insert(0, Believed())
"""


def believed_cifar(folder: Path) -> None:
    """CIFAR-10 and CIFAR-100 where hashes are checked: made/site, on the path, lets torchvision take made data."""
    cifar10(folder)
    (folder / "data" / "cifar-10-batches-py" / "batches.meta").write_bytes(
        pickle.dumps({"label_names": [str(i) for i in range(10)]})
    )
    made = folder / "data" / "cifar-100-python"
    made.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0)
    for name in ("train", "test"):
        labels = [int(i) for i in pixels.integers(0, 100, 1000)]
        data = pixels.integers(0, 255, (1000, 3072), dtype=np.uint8)
        (made / name).write_bytes(pickle.dumps({"data": data, "fine_labels": labels}))
    (made / "meta").write_bytes(pickle.dumps({"fine_label_names": [str(i) for i in range(100)]}))
    site = folder / "made" / "site"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(BELIEVED, encoding="utf-8")


def deepspeed_cifar(folder: Path) -> None:
    """CIFAR-10 without its hashes beside DeepSpeedExamples' training/cifar."""
    believed_cifar(folder / "training" / "cifar")


def pairs_of_images(folder: Path) -> None:
    """PyTorch-GAN's data/facades, two pictures side by side, and data/monet2photo's A and B."""
    image = importlib.import_module("PIL.Image")
    pixels = np.random.default_rng(0)
    parts = ("facades/train", "facades/val", "facades/test")
    for part in (*parts, *(f"monet2photo/{split}/{side}" for split in ("train", "test") for side in "AB")):
        made = folder / "data" / part
        made.mkdir(parents=True, exist_ok=True)
        for number in range(16):
            shape = (256, 512 if part in parts else 256, 3)
            image.fromarray(pixels.integers(0, 255, shape, dtype=np.uint8)).save(made / f"{number}.jpg")


def bsds(folder: Path) -> None:
    """BSDS300's folders, as pytorch/examples' super_resolution unpacks them: 256 pictures of 481 x 321."""
    image = importlib.import_module("PIL.Image")
    pixels = np.random.default_rng(0)
    for part in ("train", "test"):
        made = folder / "super_resolution" / "dataset" / "BSDS300" / "images" / part
        made.mkdir(parents=True, exist_ok=True)
        for number in range(256):
            image.fromarray(pixels.integers(0, 255, (321, 481, 3), dtype=np.uint8)).save(made / f"{number}.jpg")


def patches(folder: Path) -> None:
    """SRCNN's made/patches.h5: 256 patches of 33 x 33."""
    made = folder / "made"
    made.mkdir(exist_ok=True)
    with importlib.import_module("h5py").File(made / "patches.h5", "w") as file:
        for name in ("lr", "hr"):
            file.create_dataset(name, data=np.random.default_rng(0).random((256, 33, 33), dtype=np.float32))


def cora(folder: Path) -> None:
    """Planetoid's raw files of Cora: 2,708 papers of 1,433 words, each quoting two others."""
    for root in ("Planetoid", "Cora"):
        _cora_at(folder / "data" / root / "Cora" / "raw")


def _cora_at(made: Path) -> None:
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


def cora_text(folder: Path) -> None:
    """Cora's `cora.content`: a paper, its 1,433 words, its kind; the quotations come with the repository."""
    made = folder / "data" / "cora"
    if (made / "cora.content").exists():
        return
    quoted = [line.split() for line in (made / "cora.cites").read_text(encoding="utf-8").splitlines()]
    numbers = np.random.default_rng(0)
    words = numbers.random((2708, 1433)) < 0.0127
    papers = sorted({paper for pair in quoted for paper in pair})
    lines = [
        f"{paper}\t" + "\t".join("1" if one else "0" for one in row) + f"\tKind_{number % 7}"
        for number, (paper, row) in enumerate(zip(papers, words, strict=True))
    ]
    (made / "cora.content").write_text("\n".join(lines) + "\n", encoding="utf-8")


def minimind(folder: Path) -> None:
    """Minimind's dataset/pretrain_t2t_mini.jsonl: 1,000 texts of 400 words."""
    words = random.Random(0)
    lines = [json.dumps({"text": models.sentence(words, 400)}) for _ in range(1000)]
    (folder / "dataset" / "pretrain_t2t_mini.jsonl").write_text("\n".join(lines), encoding="utf-8")


def modelnet(folder: Path) -> None:
    """ModelNet40's points: 96 shapes of 1,024 points with their normals, and the lists of their names."""
    made = folder / "data" / "modelnet40_normal_resampled"
    if made.exists():
        return
    numbers, names = np.random.default_rng(0), [f"kind{number}" for number in range(40)]
    shapes = [f"{names[number % 40]}_{number:04d}" for number in range(96)]
    for shape in shapes:
        place = made / shape.partition("_")[0]
        place.mkdir(parents=True, exist_ok=True)
        np.savetxt(place / f"{shape}.txt", numbers.random((1024, 6)), delimiter=",", fmt="%.4f")
    for name, listed in (("shape_names", names), ("train", shapes), ("test", shapes[:48])):
        (made / f"modelnet40_{name}.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")


def fashion_mnist(folder: Path) -> None:
    """FashionMNIST, whose files are those of MNIST, under the home folder that the list gives."""
    mnist_at(folder / "data" / "fashion_mnist" / "FashionMNIST" / "raw", np.random.default_rng(0))


def windows_images(folder: Path) -> None:
    """Two folders of pictures under the Windows paths that Diffusion-Models-pytorch has in its code."""
    image_folder(folder)
    for name in (r"landscape_img_folder", r"cifar10\cifar10-64\train"):
        made = folder / rf"C:\Users\dome\datasets\{name}"
        if not made.exists():
            made.symlink_to("made/train")


def celeba(folder: Path) -> None:
    """CelebA's list of attributes and its pictures: 2,100 lines, as the first 2,000 are for tests, of 16 pictures."""
    image, made = importlib.import_module("PIL.Image"), folder / "data" / "celeba"
    if made.exists():
        return
    (made / "images").mkdir(parents=True)
    pixels, names = np.random.default_rng(0), ["Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young"]
    for number in range(16):
        picture = image.fromarray(pixels.integers(0, 255, (218, 178, 3), dtype=np.uint8))
        picture.save(made / "images" / f"{number}.jpg")
    signs = np.where(pixels.random((2100, len(names))) < 0.5, "1", "-1")
    lines = [f"{number % 16}.jpg {' '.join(row)}" for number, row in enumerate(signs)]
    (made / "list_attr_celeba.txt").write_text("\n".join(["2100", " ".join(names), *lines]), encoding="utf-8")


def enwik8_text(folder: Path) -> None:
    """Transformer-XL's made/enwik8: 400,000 numbers of letters as text, for each of three splits."""
    made = folder / "made" / "enwik8"
    made.mkdir(parents=True, exist_ok=True)
    (made / "cache.pt").unlink(missing_ok=True)  # what it keeps there it cannot read since PyTorch 2.6
    letters = random.Random(0)
    for name in ("train", "valid", "test"):
        text = " ".join(str(letters.randrange(32, 200)) for _ in range(400_000))
        (made / f"{name}.txt").write_text(text + "\n", encoding="utf-8")


def paper_implementations(folder: Path) -> None:
    """What labml's experiments read: 400,000 random letters, CIFAR-10 without its hashes, 256 small pictures."""
    believed_cifar(folder)
    letters, pixels = random.Random(0), np.random.default_rng(0)
    text = "".join(letters.choices(string.ascii_letters + " ", k=400_000))
    (folder / "data" / "tiny_shakespeare.txt").write_text(text, encoding="utf-8")
    image, made = importlib.import_module("PIL.Image"), folder / "data" / "celebA"
    made.mkdir(exist_ok=True)
    for number in range(256):
        image.fromarray(pixels.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(made / f"{number}.jpg")


def tutorials(folder: Path) -> None:
    """CIFAR-10 without its hashes in tutorials/data, and the words that pytorch-tutorial's language model reads."""
    believed_cifar(folder / "tutorials")
    made = folder / "tutorials" / "02-intermediate" / "language_model" / "data"
    made.mkdir(exist_ok=True)
    words = random.Random(0)
    lines = "\n".join(models.sentence(words, 25) for _ in range(2000))
    (made / "train.txt").write_text(lines + "\n", encoding="utf-8")


def imagenette(folder: Path) -> None:
    """MNIST at the top, and Imagenette's imagenette2: ten kinds of 16 pictures, for each of two splits."""
    pixels = np.random.default_rng(0)
    mnist_at(folder / "MNIST" / "raw", pixels)
    image = importlib.import_module("PIL.Image")
    for kind in IMAGENETTE:
        for split in ("train", "val"):
            made = folder / "imagenette2" / split / kind
            made.mkdir(parents=True, exist_ok=True)
            for number in range(16):
                image.fromarray(pixels.integers(0, 255, (320, 320, 3), dtype=np.uint8)).save(made / f"{number}.JPEG")


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
    "believed_cifar": believed_cifar,
    "deepspeed_cifar": deepspeed_cifar,
    "pairs_of_images": pairs_of_images,
    "bsds": bsds,
    "patches": patches,
    "masks": masks,
    "enwik8": enwik8,
    "neural_style": neural_style,
    "bert": models.bert,
    "cora": cora,
    "language_models": models.language_models,
    "question_answers": models.question_answers,
    "translations": models.translations,
    "image_classifier": image_classifier,
    "latent_images": latent_images,
    "diffusion_images": diffusion_images,
    "cora_text": cora_text,
    "minimind": minimind,
    "modelnet": modelnet,
    "fashion_mnist": fashion_mnist,
    "windows_images": windows_images,
    "celeba": celeba,
    "enwik8_text": enwik8_text,
    "nanochat": tokens.nanochat,
    "tiny_stories": tokens.tiny_stories,
    "airbench": tokens.airbench,
    "paper_implementations": paper_implementations,
    "tutorials": tutorials,
    "imagenette": imagenette,
    "pipelined_models": models.pipelined_models,
    "quantized_models": models.quantized_models,
    "stories": models.stories,
    "served_model": models.served_model,
    "": nothing,
}
