"""Data made up for the fifth twenty of dry_runs.toml: random, in the formats that they read; nothing is downloaded."""

import importlib
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scripts.data import MAKERS, believed_cifar, image_folder, mnist_at
from benchmarks.scripts.models import sentence, word_tokenizer

HOURS = 17_420  # of ETTh1.csv


def mnist_of_pyro(folder: Path) -> None:
    """MNIST where pyro's examples of variational autoencoders look for it."""
    for place in ("data/MNIST", "vae/utils/.data/MNISTCached"):
        mnist_at(folder / "examples" / place / "raw", np.random.default_rng(0))


def build_folder(folder: Path) -> None:
    """The folder into which the first lecture's kernel is built."""
    (folder / "lecture_001" / "load_inline_cuda").mkdir(exist_ok=True)


def private_images(folder: Path) -> None:
    """MNIST and CIFAR-10 for Opacus' examples, the latter without its hashes."""
    examples = folder / "examples"
    believed_cifar(examples)
    for place in (folder / "cifar10", folder / "mnist"):
        place.mkdir(exist_ok=True)
    target = folder / "cifar10" / "cifar-10-batches-py"
    if not target.exists():
        (examples / "data" / "cifar-10-batches-py").rename(target)
    for place in (examples / "made", folder / "mnist"):
        mnist_at(place / "MNIST" / "raw", np.random.default_rng(0))


def transformer_temperatures(folder: Path) -> None:
    """ETTh1.csv: seven numbers an hour."""
    place = folder / "dataset" / "ETT-small"
    place.mkdir(parents=True, exist_ok=True)
    pandas = importlib.import_module("pandas")
    columns = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    table = pandas.DataFrame(np.random.default_rng(0).normal(size=(HOURS, 7)), columns=columns)
    table.insert(0, "date", pandas.date_range("2016-07-01", periods=HOURS, freq="h"))
    table.to_csv(place / "ETTh1.csv", index=False)


def tiny_stories_of_litgpt(folder: Path) -> None:
    """Pythia-14m's tokenizer of made words, and TinyStories as litgpt's own code writes it before it trains."""
    place = folder / "checkpoints" / "EleutherAI" / "pythia-14m"
    place.mkdir(parents=True, exist_ok=True)
    word_tokenizer(place, "gpt_neox")
    stories = folder / "data" / "tinystories" / "TinyStories_all_data"
    stories.mkdir(parents=True, exist_ok=True)
    words = random.Random(0)
    for shard in range(2):
        made = [{"story": sentence(words, 200)} for _ in range(4000)]
        (stories / f"data{shard:02d}.json").write_text(json.dumps(made), encoding="utf-8")
    write = (
        "from litgpt.data import TinyStories; from litgpt.tokenizer import Tokenizer\n"
        "if __name__ == '__main__':\n"
        f"    data = TinyStories(); data.connect(Tokenizer('{place}'), 5, 512); data.prepare_data()\n"
    )
    (folder / "made_stories.py").write_text(write, encoding="utf-8")
    subprocess.run([sys.executable, "made_stories.py"], cwd=folder, check=True)


def yolov5_images(folder: Path) -> None:
    """Imagenette, COCO128 and its segments beside yolov5, and the weights that its classifier starts from."""
    image, pixels = importlib.import_module("PIL.Image"), np.random.default_rng(0)
    sets = folder.parent / "datasets"

    def picture(path: Path, *shape: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels.integers(0, 255, (*shape, 3), dtype=np.uint8)).save(path)

    for part, count in (("train", 40), ("val", 10)):
        for label in range(10):
            for number in range(count):
                picture(sets / "imagenette160" / part / f"n{label:08d}" / f"{number}.jpg", 160, 213)
    for name in ("coco128", "coco128-seg"):
        labels = sets / name / "labels" / "train2017"
        labels.mkdir(parents=True, exist_ok=True)
        for number in range(128):
            picture(sets / name / "images" / "train2017" / f"{number:012d}.jpg", 480, 640)
            rows = [_label(pixels, name.endswith("seg")) for _ in range(7)]
            (labels / f"{number:012d}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    fonts = Path(importlib.import_module("matplotlib").get_data_path()) / "fonts" / "ttf"
    (folder / "Arial.ttf").write_bytes((fonts / "DejaVuSans.ttf").read_bytes())
    write = (
        "import torch; from models.yolo import ClassificationModel, DetectionModel\n"
        "net = ClassificationModel(model=DetectionModel('models/yolov5s.yaml'), nc=1000)\n"
        "torch.save({'model': net.half(), 'epoch': -1, 'optimizer': None}, 'yolov5s-cls.pt')\n"
    )
    subprocess.run([sys.executable, "-c", write], cwd=folder, check=True)


def _label(pixels: np.random.Generator, has_outline: bool) -> str:
    """A kind and a box, or an outline of eight corners, as parts of the picture."""
    kind, (x, y) = int(pixels.integers(80)), pixels.uniform(0.3, 0.7, 2)
    half = float(pixels.uniform(0.05, 0.25))
    if not has_outline:
        return f"{kind} {x:.6f} {y:.6f} {2 * half:.6f} {2 * half:.6f}"
    turns = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    corners = np.stack([x + half * np.cos(turns), y + half * np.sin(turns)], axis=1).ravel()
    return " ".join([str(kind), *(f"{one:.6f}" for one in corners)])


def models_of_vllm(folder: Path) -> None:
    """OPT-125m, Llama 3.2 1B and a Qwen2.5 1.5B that classifies, as configs with tokenizers of made words: vLLM makes
    the weights up.
    """
    configs: dict[str, dict[str, Any]] = {
        "facebook/opt-125m": {"kind": "opt", "architectures": ["OPTForCausalLM"], "torch_dtype": "float16"},
        "meta-llama/Llama-3.2-1B-Instruct": {
            "kind": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
            "max_position_embeddings": 131072, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        },
        "jason9693/Qwen2.5-1.5B-apeach": {
            "kind": "qwen2", "architectures": ["Qwen2ForSequenceClassification"], "hidden_size": 1536,
            "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
            "max_position_embeddings": 32768, "torch_dtype": "bfloat16", "num_labels": 2,
        },
    }  # fmt: skip
    config_of = importlib.import_module("transformers").AutoConfig.for_model
    for name, settings in configs.items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        kind = settings.pop("kind")
        config_of(kind, **settings).save_pretrained(place)
        word_tokenizer(place, str(kind))


def imagenet_folder(folder: Path) -> None:
    """made/imagenet: the folders of random pictures that `image_folder` makes."""
    image_folder(folder)
    (folder / "made" / "imagenet").symlink_to(".")


ALL: dict[str, Callable[[Path], None]] = MAKERS | {
    "mnist_of_pyro": mnist_of_pyro,
    "build_folder": build_folder,
    "private_images": private_images,
    "transformer_temperatures": transformer_temperatures,
    "tiny_stories_of_litgpt": tiny_stories_of_litgpt,
    "yolov5_images": yolov5_images,
    "models_of_vllm": models_of_vllm,
    "imagenet_folder": imagenet_folder,
}
