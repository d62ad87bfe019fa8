"""Data made up for dry_runs.toml beside those of data.py: random, in the formats that they read."""

import importlib
import json
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scripts.data import believed_cifar, image_folder, mnist_at
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


def _keep_configs(folder: Path, configs: dict[str, dict[str, Any]]) -> None:
    """Each model as its config with a tokenizer of made words."""
    config_of = importlib.import_module("transformers").AutoConfig.for_model
    for name, settings in configs.items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        kind = settings.pop("kind")
        config_of(kind, **settings).save_pretrained(place)
        word_tokenizer(place, str(kind))


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
    _keep_configs(folder, configs)


def pooling_models_of_vllm(folder: Path) -> None:
    """E5-small, BGE's reranker, LongChat 13B and OPT-125m, as `models_of_vllm` keeps its own."""
    configs: dict[str, dict[str, Any]] = {
        "intfloat/e5-small": {
            "kind": "bert", "architectures": ["BertModel"], "hidden_size": 384, "intermediate_size": 1536,
            "torch_dtype": "float32",
        },
        "BAAI/bge-reranker-v2-m3": {
            "kind": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"], "hidden_size": 1024,
            "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 250002,
            "max_position_embeddings": 8194, "type_vocab_size": 1, "num_labels": 1, "pad_token_id": 1,
            "torch_dtype": "float32",
        },
        "lmsys/longchat-13b-16k": {
            "kind": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 5120, "intermediate_size": 13824,
            "num_hidden_layers": 40, "num_attention_heads": 40, "vocab_size": 32000, "max_position_embeddings": 16384,
            "torch_dtype": "float16",
        },
        "facebook/opt-125m": {"kind": "opt", "architectures": ["OPTForCausalLM"], "torch_dtype": "float16"},
    }  # fmt: skip
    _keep_configs(folder, configs)


def small_models_of_vllm(folder: Path) -> None:
    """OPT-125m and Qwen3 0.6B, as `models_of_vllm` keeps its own."""
    configs: dict[str, dict[str, Any]] = {
        "facebook/opt-125m": {"kind": "opt", "architectures": ["OPTForCausalLM"], "torch_dtype": "float16"},
        "Qwen/Qwen3-0.6B": {
            "kind": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072,
            "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
            "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        },
    }  # fmt: skip
    _keep_configs(folder, configs)


def libdevice_of_triton(folder: Path) -> None:
    """Triton's own libdevice where its tutorial looks for it beside the sources (triton)."""
    place = folder / "third_party" / "nvidia" / "backend" / "lib"
    place.mkdir(parents=True, exist_ok=True)
    package = Path(str(importlib.import_module("triton").__file__)).parent
    shutil.copy(package / "backends" / "nvidia" / "lib" / "libdevice.10.bc", place)


def cifar_and_its_teacher(folder: Path) -> None:
    """CIFAR-100, and a ResNet-32x4 with random weights for a teacher (RepDistiller)."""
    believed_cifar(folder)
    place = folder / "save" / "models" / "resnet32x4_vanilla"
    place.mkdir(parents=True, exist_ok=True)
    write = (
        "import torch; from models import model_dict\n"
        "net = model_dict['resnet32x4'](num_classes=100)\n"
        f"torch.save({{'model': net.state_dict()}}, '{place / 'ckpt_epoch_240.pth'}')\n"
    )
    subprocess.run([sys.executable, "-c", write], cwd=folder, check=True)


def cifar_at_home(folder: Path) -> None:
    """CIFAR-10 under .torch/datasets of the home folder that the list gives (pytorch_image_classification)."""
    believed_cifar(folder)
    place = folder / "made" / "home" / ".torch" / "datasets"
    place.mkdir(parents=True, exist_ok=True)
    (place / "CIFAR10").symlink_to(folder / "data")


def cifar_with_folders(folder: Path) -> None:
    """CIFAR, and the folders for its logs and weights (Cutout)."""
    believed_cifar(folder)
    for name in ("logs", "checkpoints"):
        (folder / name).mkdir(exist_ok=True)


def cifar_of_50000(folder: Path) -> None:
    """CIFAR-10 with all its 60,000 pictures without their hashes, and the folder for what is learnt (DivideMix)."""
    believed_cifar(folder)
    place = folder / "data" / "cifar-10-batches-py"
    (folder / "checkpoint").mkdir(exist_ok=True)
    pixels = np.random.default_rng(0)
    for name in (*(f"data_batch_{at}" for at in range(1, 6)), "test_batch"):
        pictures = pixels.integers(0, 255, (10_000, 3072), dtype=np.uint8)
        labels = [int(label) for label in pixels.integers(0, 10, 10_000)]
        (place / name).write_bytes(pickle.dumps({"data": pictures, "labels": labels}))


def mnist_of_its_own_kind(folder: Path) -> None:
    """MNIST in the folder of a class that inherits from torchvision's, and the one for its log (Deep-SVDD)."""
    mnist_at(folder / "data" / "MyMNIST" / "raw", np.random.default_rng(0))
    (folder / "log" / "mnist_test").mkdir(parents=True, exist_ok=True)


def penn_treebank(folder: Path) -> None:
    """The Penn Treebank's two parts, of made words (Sentence-VAE)."""
    (folder / "data").mkdir(exist_ok=True)
    words = random.Random(0)
    for part, lines in (("train", 4000), ("valid", 400)):
        made = "".join(f" {sentence(words, 21)} \n" for _ in range(lines))
        (folder / "data" / f"ptb.{part}.txt").write_text(made, encoding="utf-8")


def imagenet_folder(folder: Path) -> None:
    """made/imagenet: the folders of random pictures that `image_folder` makes."""
    image_folder(folder)
    (folder / "made" / "imagenet").symlink_to(".")


def cifar_in_datasets(folder: Path) -> None:
    """CIFAR under datasets/ (SupContrast)."""
    believed_cifar(folder)
    (folder / "datasets").symlink_to("data")


def cifar_with_terminal(folder: Path) -> None:
    """CIFAR, and a stty on the path that knows a size where there is no terminal."""
    believed_cifar(folder)
    (folder / "made" / "bin").mkdir(exist_ok=True)
    stty = folder / "made" / "bin" / "stty"
    stty.write_text("#!/bin/sh\necho 40 120\n", encoding="utf-8")
    stty.chmod(0o755)


def cifar_for_sam(folder: Path) -> None:
    """CIFAR under example/cifar, which leads to the example's own folder data (sam)."""
    believed_cifar(folder / "example")
    (folder / "example" / "cifar").symlink_to("data")


def cifar_beside(folder: Path) -> None:
    """CIFAR in the folder data beside the clone."""
    believed_cifar(folder.parent)
    (folder / "made").mkdir(exist_ok=True)
    if not (folder / "made" / "site").exists():
        (folder / "made" / "site").symlink_to(folder.parent / "made" / "site")


def weights_of_vit(folder: Path) -> None:
    """Weights of torchvision's ViT-L/16, under the name that torch.hub looks for (tutorials)."""
    torch, models = importlib.import_module("torch"), importlib.import_module("torchvision.models")
    place = folder / "made" / "torch" / "hub" / "checkpoints"
    place.mkdir(parents=True, exist_ok=True)
    torch.save(models.vit_l_16().state_dict(), place / "vit_l_16-852ce7e3.pth")


def translated_sentences(folder: Path) -> None:
    """2,000 pairs of English and French of made words, half of which begin as the tutorial wants them (tutorials)."""
    (folder / "data").mkdir(exist_ok=True)
    words = random.Random(0)
    pairs = (f"{('i am', 'we')[at % 2]} {sentence(words, 4)}\t{sentence(words, 6)}\n" for at in range(2000))
    (folder / "data" / "eng-fra.txt").write_text("".join(pairs), encoding="utf-8")


def mnist_at_root(folder: Path) -> None:
    """MNIST where the script is started (tutorials)."""
    mnist_at(folder / "MNIST" / "raw", np.random.default_rng(0))


def views_of_lego(folder: Path) -> None:
    """The Lego scene's 20, 8 and 8 views of 800x800 with their cameras (nerf-pytorch)."""
    image, pixels = importlib.import_module("PIL.Image"), np.random.default_rng(0)
    root = folder / "data" / "nerf_synthetic" / "lego"
    for part, count in (("train", 20), ("val", 8), ("test", 8)):
        (root / part).mkdir(parents=True, exist_ok=True)
        frames = []
        for at in range(count):
            image.fromarray(pixels.integers(0, 255, (800, 800, 4), dtype=np.uint8)).save(root / part / f"r_{at}.png")
            camera = np.eye(4)
            camera[2, 3] = 4.0
            frames.append({"file_path": f"./{part}/r_{at}", "transform_matrix": camera.tolist()})
        made = {"camera_angle_x": 0.69, "frames": frames}
        (root / f"transforms_{part}.json").write_text(json.dumps(made), encoding="utf-8")


MAKERS: dict[str, Callable[[Path], None]] = {
    one.__name__: one
    for one in (mnist_of_pyro, build_folder, private_images, transformer_temperatures, tiny_stories_of_litgpt,
                yolov5_images, models_of_vllm, pooling_models_of_vllm, imagenet_folder, cifar_in_datasets,
                cifar_with_terminal, cifar_for_sam, cifar_beside, weights_of_vit, translated_sentences, mnist_at_root,
                views_of_lego, small_models_of_vllm, libdevice_of_triton, cifar_and_its_teacher, cifar_at_home,
                cifar_with_folders, cifar_of_50000, mnist_of_its_own_kind, penn_treebank)
}  # fmt: skip
