"""Data made up for the rounds of rounds.toml, up to the ninth: small and random, in the form that the scripts expect.

Runs under the scripts' own Python, whose packages it may use; what is there already is not made again.
"""

import csv
import datetime as dt
import gzip
import importlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

IMAGE = importlib.import_module("PIL.Image")  # installed beside the scripts alone
ROLL = np.random.default_rng(0)


def image(file: Path, width: int, height: int, top: int | None = None) -> None:
    """A picture of noise at `file`, in colour; a mask with values below `top` where that is given."""
    file.parent.mkdir(parents=True, exist_ok=True)
    shape = (height, width) if top else (height, width, 3)
    IMAGE.fromarray(ROLL.integers(0, top or 256, shape, dtype=np.uint8)).save(file)


def torchvision_weights(folder: Path, file: str, net: str) -> None:
    """Random weights of torchvision's `net` in `folder`, under the name `file` that torch.hub looks for."""
    (folder / "hub" / "checkpoints").mkdir(parents=True, exist_ok=True)
    torch.save(
        getattr(importlib.import_module("torchvision.models"), net)().state_dict(),
        folder / "hub" / "checkpoints" / file,
    )


def coco(clone: Path, count: int = 24) -> None:
    """COCO's folders with `count` pictures of 640x480 and five boxes each, and ResNet-50's weights (DETR)."""
    root = clone / "made" / "coco"
    for part in ("train", "val"):
        pictures, boxes = [], []
        for number in range(1, count + 1):
            image(root / f"{part}2017" / f"{number:012}.jpg", 640, 480)
            pictures.append({"id": number, "file_name": f"{number:012}.jpg", "width": 640, "height": 480})
            boxes += [
                {"id": 5 * number + at, "image_id": number, "category_id": 1 + at, "iscrowd": 0, "area": 5000.0,
                 "bbox": [20.0 * at, 30.0 * at, 50.0, 100.0]}
                for at in range(5)
            ]  # fmt: skip
        (root / "annotations").mkdir(exist_ok=True)
        categories = [{"id": number, "name": f"c{number}"} for number in range(1, 91)]
        (root / "annotations" / f"instances_{part}2017.json").write_text(
            json.dumps({"images": pictures, "annotations": boxes, "categories": categories})
        )
    torchvision_weights(clone / "made" / "torch", "resnet50-0676ba61.pth", "resnet50")


def yolo_coco(clone: Path) -> None:
    """COCO as YOLO reads it: lists of 40 pictures, a text file of boxes beside each."""
    for part in ("train2017", "val2017", "test-dev2017"):
        names = []
        for number in range(40):
            image(clone / "coco" / "images" / part / f"{number:012}.jpg", 640, 480)
            names.append(f"./images/{part}/{number:012}.jpg")
            labels = clone / "coco" / "labels" / part / f"{number:012}.txt"
            labels.parent.mkdir(parents=True, exist_ok=True)
            labels.write_text("".join(f"{at} 0.{at + 2} 0.{at + 2} 0.2 0.3\n" for at in range(5)))
        (clone / "coco" / f"{part}.txt").write_text("\n".join(names) + "\n")


def duts(clone: Path) -> None:
    """Pictures with masks, as U-2-Net reads DUTS."""
    root = clone / "train_data" / "DUTS" / "DUTS-TR" / "DUTS-TR"
    for number in range(48):
        image(root / "im_aug" / f"{number}.jpg", 400, 300)
        image(root / "gt_aug" / f"{number}.png", 400, 300, 255)


def ett_hours(clone: Path) -> None:
    """Two years of hours with seven columns."""
    columns = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    days(clone / "data" / "ETT" / "ETTh1.csv", columns, 17420, dt.timedelta(hours=1))


def days(file: Path, columns: list[str], rows: int, apart: dt.timedelta) -> None:
    """A table at `file` whose first column is a date, `apart` from the next of `rows`; the others are random."""
    file.parent.mkdir(parents=True, exist_ok=True)
    start = dt.datetime(2016, 7, 1, tzinfo=dt.timezone.utc)
    with file.open("w", newline="") as opened:
        table = csv.writer(opened)
        table.writerow(["date", *columns])
        for at in range(rows):
            table.writerow([(start + at * apart).strftime("%Y-%m-%d %H:%M:%S"), *ROLL.random(len(columns)).round(4)])


def exchange_rates(clone: Path) -> None:
    """Eight rates on 7,588 days."""
    days(clone / "dataset" / "exchange_rate.csv", [*"0123456", "OT"], 7588, dt.timedelta(days=1))


def wavs_with_frames(clone: Path) -> None:
    """Sixty wave files of three seconds, and their spectrograms as DiffWave's preprocess leaves them."""
    soundfile = importlib.import_module("soundfile")
    folder = clone / "made" / "wavs"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(60):
        soundfile.write(folder / f"{number}.wav", ROLL.uniform(-0.5, 0.5, 256 * 258).astype(np.float32), 22050)
        np.save(folder / f"{number}.wav.spec.npy", ROLL.random((80, 258), dtype=np.float32))


def mutag(clone: Path) -> None:
    """188 small graphs in the text form of powerful-gnns."""
    folder = clone / "dataset" / "MUTAG"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["188"]
    for number in range(188):
        size = int(ROLL.integers(10, 28))
        lines.append(f"{size} {number % 2}")
        for node in range(size):
            others = sorted({(node + 1) % size, (node - 1) % size})
            lines.append(f"{node % 7} {len(others)} " + " ".join(map(str, others)))
    (folder / "MUTAG.txt").write_text("\n".join(lines) + "\n")


def vocoder_frames(clone: Path) -> None:
    """LJSpeech as WaveRNN's preprocess.py leaves it: mel frames, quantized samples, their list."""
    folder = clone / "data"
    names = []
    for part in ("mel", "quant", "gta"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    texts = {}
    for number in range(200):
        name, frames = f"LJ{number:03}", int(ROLL.integers(80, 200))
        for part in ("mel", "gta"):
            np.save(folder / part / f"{name}.npy", ROLL.random((80, frames), dtype=np.float32))
        np.save(folder / "quant" / f"{name}.npy", ROLL.integers(0, 65535, frames * 275))
        names.append((name, frames))
        texts[name] = "the quick brown fox jumps over the lazy dog " * (1 + number % 3)
    (folder / "dataset.pkl").write_bytes(pickle.dumps(names))
    (folder / "text_dict.pkl").write_bytes(pickle.dumps(texts))


def proteins(clone: Path) -> None:
    """Sixty single chains of 60 to 300 residues in the form of ProteinMPNN's training set."""
    root = clone / "training" / "my_path" / "pdb_2021aug02"
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
    rows = []
    for number in range(60):
        name, size = f"{number % 10}aa{number // 10}", int(ROLL.integers(60, 300))
        folder = root / "pdb" / "aa"
        folder.mkdir(parents=True, exist_ok=True)
        sequence = "".join(letters[ROLL.integers(0, 20, size)])
        torch.save(
            {"method": "X", "date": "2000-01-01", "resolution": 2.0, "chains": ["A"], "tm": torch.ones(1, 1, 3),
             "asmb_ids": ["1"], "asmb_chains": ["B"], "asmb_details": ["x"], "asmb_method": ["x"]},
            folder / f"{name}.pt")  # fmt: skip
        torch.save(
            {"seq": sequence, "xyz": torch.randn(size, 14, 3), "mask": torch.ones(size, 14),
             "bfac": torch.ones(size, 14), "occ": torch.ones(size, 14)}, folder / f"{name}_A.pt")  # fmt: skip
        rows.append(f"{name}_A,2000-01-01,2.0,{number:06},{number},{sequence}")
    (root / "list.csv").write_text("CHAINID,DEPOSITION,RESOLUTION,HASH,CLUSTER,SEQUENCE\n" + "\n".join(rows) + "\n")
    (root / "valid_clusters.txt").write_text("\n".join(map(str, range(50, 55))) + "\n")
    (root / "test_clusters.txt").write_text("\n".join(map(str, range(55, 60))) + "\n")


def named_images(clone: Path) -> None:
    """600 pictures whose class is the first part of their name."""
    for number in range(600):
        image(clone / "made" / "images" / f"class{number % 10}_{number}.jpg", 160, 160)


def episodes(clone: Path) -> None:
    """Fifty episodes of 400 steps with one camera, and ResNet-18's weights (ACT)."""
    h5py = importlib.import_module("h5py")
    folder = clone / "<put your data dir here>" / "sim_transfer_cube_scripted"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(50):
        with h5py.File(folder / f"episode_{number}.hdf5", "w") as file:
            file.attrs["sim"] = True
            file["action"] = ROLL.random((400, 14), dtype=np.float32)
            seen = file.create_group("observations")
            seen["qpos"] = ROLL.random((400, 14), dtype=np.float32)
            seen["qvel"] = ROLL.random((400, 14), dtype=np.float32)
            shape = (400, 480, 640, 3)
            seen.create_dataset("images/top", shape, np.uint8, chunks=(1, *shape[1:]), compression="gzip")
    torchvision_weights(clone / "made" / "torch", "resnet18-f37072fd.pth", "resnet18")


def mnist_of_pyro(clone: Path) -> None:
    """MNIST's files with noise, where Pyro's examples look for them."""
    folder = clone / "examples" / "contrib" / "gp" / ".data" / "MNIST" / "raw"
    idx_images(folder)


def idx_images(folder: Path) -> None:
    """MNIST's four files with 2,000 and 500 pictures of noise."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 2000), ("t10k", 500)):
        pictures = ROLL.integers(0, 256, (count, 28, 28), dtype=np.uint8).tobytes()
        labels = ROLL.integers(0, 10, count, dtype=np.uint8).tobytes()
        sizes = b"".join(number.to_bytes(4, "big") for number in (2051, count, 28, 28))
        (folder / f"{part}-images-idx3-ubyte").write_bytes(sizes + pictures)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(
            (2049).to_bytes(4, "big") + count.to_bytes(4, "big") + labels
        )


def rates_of_weather(clone: Path) -> None:
    """Twenty-one readings every ten minutes (PatchTST)."""
    columns = [*(f"w{number}" for number in range(20)), "OT"]
    file = clone / "PatchTST_supervised" / "dataset" / "weather.csv"
    days(file, columns, 12000, dt.timedelta(minutes=10))


def traffic(clone: Path) -> None:
    """862 sensors' readings for 2,000 hours (iTransformer)."""
    columns = [*(str(number) for number in range(861)), "OT"]
    days(clone / "dataset" / "traffic" / "traffic.csv", columns, 2000, dt.timedelta(hours=1))


def ett_minutes(clone: Path) -> None:
    """ETTm1: seven columns, every quarter of an hour for 20 months (Autoformer)."""
    columns = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    file = clone / "dataset" / "ETT-small" / "ETTm1.csv"
    days(file, columns, 20 * 30 * 24 * 4, dt.timedelta(minutes=15))


def cifar(clone: Path) -> None:
    """CIFAR-10's batches with noise under data/, CIFAR10/ and made/datasets/; made/site lets torchvision take them.

    DUQ wants a folder runs/ that nobody makes.
    """
    (clone / "runs").mkdir(exist_ok=True)
    for root in ("data", "data/CIFAR10", "CIFAR10", "made/datasets/cifar10", "made/datasets/cifar10_test"):
        folder = clone / root / "cifar-10-batches-py"
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            pixels = ROLL.integers(0, 256, (1000, 3072), dtype=np.uint8)
            made = {"data": pixels, "labels": [int(label) for label in ROLL.integers(0, 10, 1000)]}
            (folder / name).write_bytes(pickle.dumps(made))
        (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(number) for number in range(10)]}))
    site = clone / "made" / "site"
    site.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    (site / "sitecustomize.py").write_text(importlib.import_module("benchmarks.scripts.data").BELIEVED)


def mnist(clone: Path) -> None:
    """MNIST's files with noise under data/ and mnist_data/."""
    for root in ("data", "mnist_data"):
        idx_images(clone / root / "MNIST" / "raw")


def bought(clone: Path) -> None:
    """What 600 users bought, 20 to 300 of 3,400 articles each, in their order (SASRec)."""
    with (clone / "python" / "data" / "ml-1m.txt").open("w") as file:
        for user in range(1, 601):
            for article in ROLL.integers(1, 3401, int(ROLL.integers(20, 300))):
                file.write(f"{user} {article}\n")


def lesions(clone: Path) -> None:
    """ISIC's folders with 40, 8 and 8 pictures of skin and their masks."""
    for part, count in (("train", 40), ("valid", 8), ("test", 8)):
        for number in range(count):
            image(clone / "dataset" / part / f"ISIC_{number:04}.jpg", 512, 384)
            image(clone / "dataset" / f"{part}_GT" / f"ISIC_{number:04}_segmentation.png", 512, 384, 255)


def cifar_of_cfm(clone: Path) -> None:
    """CIFAR-10 where conditional-flow-matching's example looks for it."""
    cifar(clone / "examples" / "images" / "cifar10")


def series(clone: Path) -> None:
    """UCR's Chinatown: 20 and 343 series of 24 hours, of two classes."""
    folder = clone / "datasets" / "UCR" / "Chinatown"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("TRAIN", 20), ("TEST", 343)):
        rows = ("\t".join(map(str, [1 + at % 2, *ROLL.random(24).round(4)])) for at in range(count))
        (folder / f"Chinatown_{part}.tsv").write_text("\n".join(rows) + "\n")


def faces(clone: Path) -> None:
    """400 pictures in CelebA's size, beside the clone, where neural-processes looks for them."""
    for number in range(400):
        image(clone.parent / "celeba_data" / f"{number}.jpg", 178, 218)


def charged_bodies(clone: Path) -> None:
    """EGNN's five charged bodies over 49 moments."""
    folder = clone / "n_body_system" / "dataset"
    for part, runs in (("train", 3000), ("valid", 2000), ("test", 2000)):
        suffix = f"{part}_charged5_initvel1small"
        for name in ("loc", "vel"):
            np.save(folder / f"{name}_{suffix}.npy", ROLL.standard_normal((runs, 49, 3, 5)))
        np.save(folder / f"edges_{suffix}.npy", ROLL.choice([-1.0, 1.0], (runs, 5, 5)))
        np.save(folder / f"charges_{suffix}.npy", ROLL.choice([-1.0, 1.0], (runs, 5, 1)))


def voc(clone: Path) -> None:
    """PASCAL VOC's folders with 48 pictures and their classes, and VGG-16's weights."""
    root = clone / "datasets" / "voc" / "VOC2012"
    if root.parent.is_symlink():  # to the author's own
        root.parent.unlink()
    (root / "ImageSets" / "Segmentation").mkdir(parents=True, exist_ok=True)
    for number in range(48):
        image(root / "JPEGImages" / f"{number}.jpg", 500, 375)
        image(root / "SegmentationClass" / f"{number}.png", 500, 375, 21)
    for part in ("train", "val", "trainval"):
        (root / "ImageSets" / "Segmentation" / f"{part}.txt").write_text("\n".join(map(str, range(48))) + "\n")
    torchvision_weights(clone / "made" / "torch", "vgg16-397923af.pth", "vgg16")


def molecules(clone: Path) -> None:
    """600 small molecules with a figure each."""
    folder = clone / "dataset" / "regression" / "photovoltaic"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 400), ("test", 100)):
        parts = ["C" * int(ROLL.integers(1, 9)) + "1CCCCC1"[:7] + "O" * int(ROLL.integers(0, 2)) for _ in range(count)]
        (folder / f"data_{part}.txt").write_text("".join(f"{smiles} {ROLL.random():.3f}\n" for smiles in parts))


def triples(clone: Path) -> None:
    """20,000 random triples of FB15k's entities and relations, and 500 for each of the two checks."""
    folder = clone / "data" / "FB15k"
    names = [
        [line.split("\t")[1] for line in (folder / f"{kind}.dict").read_text().splitlines()]
        for kind in ("entities", "relations")
    ]
    for part, count in (("train", 20000), ("valid", 500), ("test", 500)):
        of = [ROLL.integers(0, len(names[which]), count) for which in (0, 1, 0)]
        rows = (f"{names[0][head]}\t{names[1][by]}\t{names[0][tail]}\n" for head, by, tail in zip(*of, strict=True))
        (folder / f"{part}.txt").write_text("".join(rows))


def voices(clone: Path) -> None:
    """VoxCeleb's lists with 40 speakers of six wave files of four seconds each."""
    soundfile = importlib.import_module("soundfile")
    lines = []
    for speaker in range(220):
        for at in range(2):
            file = clone / "data" / "voxceleb2" / "dev" / "wav" / f"id{speaker}" / "v" / f"{at}.wav"
            file.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(file, ROLL.uniform(-0.5, 0.5, 16000 * 4).astype(np.float32), 16000)
            lines.append(f"id{speaker} id{speaker}/v/{at}.wav\n")
    (clone / "data" / "train_list.txt").write_text("".join(lines))
    (clone / "data" / "veri_test.txt").write_text("1 id0/v/0.wav id0/v/1.wav\n")


def weights_of(module: str, net: str, file: Path, part: str = "") -> None:
    """Random weights at `file`: the state of what `net` of the clone's `module` builds, or of its attribute `part`."""
    built = getattr(importlib.import_module(module), net)
    made = built() if net != "resnet50" else built(pretrained=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save((getattr(made, part) if part else made).state_dict(), file)


def voc_boxes_in(folder_of_all: Path, parts: tuple[str, ...]) -> None:
    """PASCAL VOC's folders `parts` with 60 pictures of two boxes each."""
    for part in parts:
        root = folder_of_all / part
        for folder in ("ImageSets/Main", "Annotations"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        names = [f"{number:06}" for number in range(60)]
        for name in names:
            image(root / "JPEGImages" / f"{name}.jpg", 500, 375)
            boxes = "".join(
                f"<object><name>{kind}</name><difficult>0</difficult><bndbox><xmin>{at}</xmin><ymin>{at}</ymin>"
                f"<xmax>{at + 150}</xmax><ymax>{at + 180}</ymax></bndbox></object>"
                for kind, at in (("dog", 40), ("person", 160))
            )
            (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{boxes}</annotation>")
        for listed in ("trainval", "test"):
            (root / "ImageSets" / "Main" / f"{listed}.txt").write_text("\n".join(names) + "\n")


def voc_boxes(clone: Path) -> None:
    """Three folders of PASCAL VOC with 60 pictures of two boxes each, and MobileNetV2's weights (pytorch-ssd)."""
    voc_boxes_in(clone / "made", ("VOC2007", "VOC2012", "test/VOC2007"))
    sys.path.insert(0, str(clone))
    weights_of("vision.nn.mobilenet_v2", "MobileNetV2", clone / "models" / "mb2-imagenet-71_8.pth", "features")


def streets(clone: Path) -> None:
    """Cityscapes' folders with 24 pictures of 1024x512 in each of two parts, and the backbone's weights."""
    root = clone / "data" / "cityscapes"
    for part in ("train", "val"):
        for number in range(24):
            seen = root / "leftImg8bit_trainvaltest" / "leftImg8bit" / part / "ulm"
            image(seen / f"ulm_{number:06}_leftImg8bit.png", 1024, 512)
            known = root / "gtFine_trainvaltest" / "gtFine" / part / "ulm"
            image(known / f"ulm_{number:06}_gtFine_labelIds.png", 1024, 512, 34)
    sys.path.insert(0, str(clone))
    weights_of("models.resnet", "resnet50", clone / "pretrained" / "resnet50s-a75c83cf.pth")


def ratings(clone: Path) -> None:
    """60,000 ratings of 6,040 people for 3,706 films, each of whom and of which occurs (MovieLens)."""
    file = clone / "src" / "data" / "ml-1m" / "ratings.dat"
    with file.open("w") as written:
        for at in range(60000):
            film = int(ROLL.integers(1, 3707)) if at >= 3706 else at + 1
            written.write(f"{1 + at % 6040}::{film}::{int(ROLL.integers(1, 6))}::{978300000 + at}\n")


def machines(clone: Path) -> None:
    """What 38 gauges of a server read, 20,000 times and 5,000 times (SMD)."""
    folder = clone / "dataset" / "SMD"
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", 20000), ("test", 5000)):
        np.save(folder / f"SMD_{part}.npy", ROLL.random((rows, 38)))
    np.save(folder / "SMD_test_label.npy", ROLL.integers(0, 2, 5000))


def cifar_in_dataset(clone: Path) -> None:
    """CIFAR-10 under dataset/ (minimal-diffusion)."""
    cifar(clone)
    (clone / "dataset").mkdir(exist_ok=True)
    for name in ("cifar-10-batches-py",):
        if not (clone / "dataset" / name).exists():
            (clone / "dataset" / name).symlink_to(clone / "data" / name)


def encoded_meals(clone: Path) -> None:
    """E2E's pairs as GPT-2's tokens, and random weights of GPT-2 medium (LoRA)."""
    root = clone / "examples" / "NLG"
    for part in ("train", "valid"):
        with (root / "data" / "e2e" / f"{part}.jsonl").open("w") as file:
            for _ in range(200):
                pair = [[int(one) for one in ROLL.integers(0, 50256, int(ROLL.integers(15, 45)))] for _ in range(2)]
                file.write(json.dumps({"context": pair[0], "completion": pair[1]}) + "\n")
    transformers = importlib.import_module("transformers")
    medium = transformers.GPT2Config(n_embd=1024, n_layer=24, n_head=16)
    (root / "pretrained_checkpoints").mkdir(exist_ok=True)
    torch.save(
        transformers.GPT2Model(medium).state_dict(), root / "pretrained_checkpoints" / "gpt2-medium-pytorch_model.bin"
    )


def turned_heads(clone: Path) -> None:
    """QMUL's 29 people from 133 sides each, 100x100 (deep-kernel-transfer)."""
    sys.path.insert(0, str(clone))
    loader = importlib.import_module("data.qmul_loader")
    for person in (*loader.train_people, *loader.test_people):
        for pitch in range(30, 130, 10):
            for angle in range(0, 190, 10):
                name = f"{person[:-4]}_{loader.num_to_str(pitch)}_{loader.num_to_str(angle)}.jpg"
                image(clone / "filelists" / "QMUL" / "images" / person / name, 100, 100)


def scenes(clone: Path) -> None:
    """ADE20K's lists of 32 pictures with their classes, and the backbone's weights (semseg)."""
    root = clone / "dataset" / "ade20k"
    (root / "list").mkdir(parents=True, exist_ok=True)
    for part in ("training", "validation"):
        for number in range(32):
            image(root / "images" / part / f"{number}.jpg", 640, 512)
            image(root / "annotations" / part / f"{number}.png", 640, 512, 150)
        lines = [f"images/{part}/{number}.jpg annotations/{part}/{number}.png" for number in range(32)]
        (root / "list" / f"{part}.txt").write_text("\n".join(lines) + "\n")
    sys.path.insert(0, str(clone))
    weights_of("model.resnet", "resnet50", clone / "initmodel" / "resnet50_v2.pth")


def loops(clone: Path) -> None:
    """What 358 loops under a motorway counted in 4,000 spells of five minutes (PEMS03)."""
    folder = clone / "datasets" / "PEMS"
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "PEMS03.npz", data=ROLL.random((4000, 358, 1)) * 300)


def conformers(clone: Path) -> None:
    """ANI-1x's file with 4,000 shapes of three molecules, their energies and forces (torchani)."""
    folder = clone / "download" / "dataset" / "ani-1x"
    folder.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(clone))
    data_set = importlib.import_module("torchani.datasets").ANIDataset(
        folder / "sample.h5", grouping="by_formula", verbose=False
    )
    for formula, atoms in (("C1H4", "CHHHH"), ("H2O1", "OHH"), ("C2H6O1", "CCOHHHHHH")):
        data_set.append_conformers(
            formula,
            {
                "species": np.array([list(atoms)] * 1300, dtype=str),
                "coordinates": ROLL.normal(0, 1.5, (1300, len(atoms), 3)).astype(np.float32),
                "energies": ROLL.normal(-40, 1, 1300),
                "forces": ROLL.normal(0, 0.1, (1300, len(atoms), 3)).astype(np.float32),
            },
        )


def drives(clone: Path) -> None:
    """Forty drives of 40 moments seen in 96x96 colours (BeT's CARLA), and ResNet-18's weights."""
    folder = clone / "made" / "carla"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(torch.full((40,), 40), folder / "seq_lengths.pth")
    torch.save(torch.randint(0, 256, (40, 40, 3, 96, 96), dtype=torch.uint8), folder / "all_observations.pth")
    torch.save(torch.rand(40, 40, 2) * 2 - 1, folder / "all_actions_pm1.pth")
    torchvision_weights(clone / "made" / "torch", "resnet18-f37072fd.pth", "resnet18")


def faces_with_landmarks(clone: Path) -> None:
    """WIDER FACE's list of 96 pictures with three faces each, and ResNet-50's weights (Retinaface)."""
    root = clone / "data" / "widerface" / "train"
    lines = []
    for number in range(96):
        image(root / "images" / f"{number}.jpg", 1024, 768)
        lines.append(f"# {number}.jpg")
        for at in (100, 300, 500):
            marks = " ".join(f"{at + 10 * mark} {at + 12 * mark} 0.0" for mark in range(1, 6))
            lines.append(f"{at} {at} 120 150 {marks} 0.8")
    (root / "label.txt").write_text("\n".join(lines) + "\n")
    torchvision_weights(clone / "made" / "torch", "resnet50-0676ba61.pth", "resnet50")


def visits(clone: Path) -> None:
    """4,000 visits of 3 to 12 clicks on 8,000 articles (GRU4REC)."""
    (clone / "made").mkdir(exist_ok=True)
    for part, count in (("TrainOnly", 4000), ("Valid", 400)):
        with (clone / "made" / f"recSys15{part}.txt").open("w") as file:
            file.write("SessionID,ItemID,Time\n")
            for visit in range(count):
                for click in range(int(ROLL.integers(3, 13))):
                    file.write(f"{visit},{int(ROLL.integers(0, 8000))},{1400000000 + visit * 60 + click}.0\n")


def digits(clone: Path) -> None:
    """600 digits as pictures in a folder for each (DDPM-Pytorch)."""
    for number in range(600):
        image(clone / "data" / "train" / "images" / str(number % 10) / f"{number}.png", 28, 28, 255)


def films_with_masks(clone: Path) -> None:
    """MOSE's folders with 16 films of 10 pictures and two objects, settings that name them, SAM 2.1's weights."""
    root = clone / "made" / "mose"
    for film in range(16):
        for frame in range(10):
            image(root / "JPEGImages" / f"film{film}" / f"{frame:05}.jpg", 640, 480)
            mask = np.zeros((480, 640), dtype=np.uint8)
            mask[100:200, 50 + 5 * frame : 200] = 1
            mask[250:400, 300 : 450 + frame] = 2
            file = root / "Annotations" / f"film{film}" / f"{frame:05}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            drawn = IMAGE.fromarray(mask).convert("P")
            drawn.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0])
            drawn.save(file)
    (root / "films.txt").write_text("".join(f"film{film}\n" for film in range(16)))
    folder = clone / "sam2" / "configs" / "sam2.1_training"
    listed = "training/assets/MOSE_sample_train_list.txt"
    text = (folder / "sam2.1_hiera_b+_MOSE_finetune.yaml").read_text().replace(listed, f"{root}/films.txt")
    text = text.replace("img_folder: null", f"img_folder: {root}/JPEGImages")
    (folder / "made.yaml").write_text(text.replace("gt_folder: null", f"gt_folder: {root}/Annotations"))
    sys.path.insert(0, str(clone))
    build = importlib.import_module("sam2.build_sam").build_sam2
    net = build("configs/sam2.1/sam2.1_hiera_b+.yaml", device="cpu")
    torch.save({"model": net.state_dict()}, clone / "checkpoints" / "sam2.1_hiera_base_plus.pt")


def spoken_frames(clone: Path) -> None:
    """40 speakers' mel frames, four utterances each, and their list (AutoVC)."""
    folder = clone / "spmel"
    listed = []
    for speaker in range(40):
        (folder / f"p{speaker}").mkdir(parents=True, exist_ok=True)
        names = [f"p{speaker}/{number}.npy" for number in range(4)]
        for name in names:
            np.save(folder / name, ROLL.random((int(ROLL.integers(100, 300)), 80), dtype=np.float32))
        listed.append([f"p{speaker}", ROLL.random(256, dtype=np.float32), *names])
    (folder / "train.pkl").write_bytes(pickle.dumps(listed))


def noise_series(clone: Path) -> None:
    """200 series of 1,024 places in GluonTS's form, a settings file that names them, T5-efficient-small's settings."""
    root = clone / "scripts" / "made"
    root.mkdir(parents=True, exist_ok=True)
    writer = importlib.import_module("gluonts.dataset.arrow").ArrowWriter(compression="lz4")
    for name in ("tsmixup", "kernelsynth"):
        rows = [{"start": np.datetime64("2000-01-01 00:00", "s"), "target": ROLL.random(1024)} for _ in range(200)]
        writer.write_to_file(rows, path=root / f"{name}.arrow")
    transformers = importlib.import_module("transformers")
    transformers.T5Config(
        d_model=512, d_ff=2048, d_kv=64, num_heads=8, num_layers=6, vocab_size=32128, decoder_start_token_id=0,
        architectures=["T5ForConditionalGeneration"],
    ).save_pretrained(root / "t5-efficient-small")  # fmt: skip
    text = (clone / "scripts" / "training" / "configs" / "chronos-t5-small.yaml").read_text()
    for name in ("tsmixup", "kernelsynth"):
        text = re.sub(rf'"[^"]*/{name}-data.arrow"', f'"{root / name}.arrow"', text)
    text = text.replace("google/t5-efficient-small", str(root / "t5-efficient-small"))
    (root / "chronos-t5-small.yaml").write_text(text.replace("./output/", str(root / "output")))


def atoms(file: Path, count: int, symbols: str) -> None:
    """`count` clusters of twelve to twenty atoms of `symbols` with energies and forces, as extended XYZ."""
    lines = []
    for _ in range(count):
        size = int(ROLL.integers(12, 21))
        head = "Properties=species:S:1:pos:R:3:REF_forces:R:3:forces:R:3"
        lines += [str(size), f'{head} REF_energy={ROLL.normal(-40)} energy={ROLL.normal(-40)} pbc="F F F"']
        for at in range(size):
            where = np.array([at % 3, at // 3 % 3, at // 9]) * 1.4 + ROLL.normal(0, 0.1, 3)
            pull = " ".join(f"{one:.4f}" for one in ROLL.normal(0, 0.1, 3))
            lines.append(f"{symbols.split()[at % 4]} {' '.join(f'{one:.4f}' for one in where)} {pull} {pull}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def energies(clone: Path) -> None:
    """200 and 20 clusters of H, C, N and O with energies and forces (MACE)."""
    atoms(clone / "train.xyz", 200, "H C N O")
    atoms(clone / "test.xyz", 20, "H C N O")


def energies_with_copper(clone: Path) -> None:
    """100 clusters of C, H, O and Cu with energies and forces, and the command that pip installs (NequIP)."""
    atoms(clone / "configs" / "fcu.xyz", 100, "C H O Cu")
    (clone / "configs" / "nequip-train").write_text("from nequip.scripts.train import main\n\nmain()\n")


def mnist_beside(clone: Path) -> None:
    """MNIST's files with noise beside the clone (Bayesian-Neural-Networks)."""
    idx_images(clone.parent / "data" / "MNIST" / "raw")


def voc_lists(clone: Path) -> None:
    """64 pictures with two boxes each in the lists of the tutorial on detection, and VGG-16's weights."""
    (clone / "made").mkdir(exist_ok=True)
    names = [str(clone / "made" / f"{number}.jpg") for number in range(64)]
    for name in names:
        image(Path(name), 500, 375)
    boxes = {"boxes": [[40, 40, 190, 220], [160, 160, 310, 340]], "labels": [12, 15], "difficulties": [0, 0]}
    for part in ("TRAIN", "TEST"):
        (clone / f"{part}_images.json").write_text(json.dumps(names))
        (clone / f"{part}_objects.json").write_text(json.dumps([boxes] * 64))
    torchvision_weights(clone / "made" / "torch", "vgg16-397923af.pth", "vgg16")


def scans(clone: Path) -> None:
    """Ten scans of 32x128x128 with a mask, planned and prepared by nnU-Net's own command."""
    sitk = importlib.import_module("SimpleITK")
    root = clone / "made"
    folder = root / "raw" / "Dataset001_Made"
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for number in range(10):
        mask = np.zeros((32, 128, 128), dtype=np.uint8)
        mask[8:24, 40:80, 30 + number : 90] = 1
        scan = (ROLL.random(mask.shape) + mask).astype(np.float32)
        sitk.WriteImage(sitk.GetImageFromArray(scan), str(folder / "imagesTr" / f"case_{number:03}_0000.nii.gz"))
        sitk.WriteImage(sitk.GetImageFromArray(mask), str(folder / "labelsTr" / f"case_{number:03}.nii.gz"))
    (folder / "dataset.json").write_text(json.dumps({"channel_names": {"0": "CT"}, "numTraining": 10,
        "labels": {"background": 0, "organ": 1}, "file_ending": ".nii.gz"}))  # fmt: skip
    places = {f"nnUNet_{name}": str(root / name) for name in ("raw", "preprocessed", "results")}
    call = "from nnunetv2.experiment_planning.plan_and_preprocess_entrypoints import *; plan_and_preprocess_entry()"
    plan = [sys.executable, "-c", call, "-d", "1", "-c", "2d", "-np", "1", "-npfp", "1"]
    subprocess.run(plan, env=os.environ | places, cwd=clone, check=True)


def libri_lists(clone: Path) -> None:
    """LibriTTS' lists of 40 and twice 4 wave files of four seconds (BigVGAN)."""
    soundfile = importlib.import_module("soundfile")
    folder = clone / "filelists" / "LibriTTS"
    for name, count in (("train-full", 40), ("val-full", 4), ("dev-clean", 4), ("dev-other", 4)):
        for number in range(count):
            (folder / name).mkdir(exist_ok=True)
            wave = ROLL.uniform(-0.5, 0.5, 24000 * 4).astype(np.float32)
            soundfile.write(folder / name / f"{number}.wav", wave, 24000)
        (folder / f"{name}.txt").write_text("".join(f"{name}/{number}|a word\n" for number in range(count)))


def sample_visits(clone: Path) -> None:
    """SR-GNN's own sample, prepared by its own command."""
    command = [sys.executable, "preprocess.py", "--dataset=sample"]
    subprocess.run(command, cwd=clone / "datasets", check=True)


def compiled_sampler(clone: Path) -> None:
    """OpenKE's sampler compiled and its example at the top, as its README says."""
    subprocess.run([shutil.which("bash") or "bash", "make.sh"], cwd=clone / "openke", check=True)
    text = (clone / "examples" / "train_transe_FB15K237.py").read_text()
    (clone / "train_transe_FB15K237.py").write_text(text)
    (clone / "checkpoint").mkdir(exist_ok=True)


def bytes_of_text(clone: Path) -> None:
    """95 million random bytes where enwik8 stands (PaLM-rlhf-pytorch)."""
    with gzip.open(clone / "data" / "enwik8.gz", "wb", compresslevel=1) as file:
        file.write(ROLL.integers(32, 127, 95_000_000, dtype=np.uint8).tobytes())


def small_and_large_faces(clone: Path) -> None:
    """64 faces in 16x16 blown up and in 128x128, in LMDB (SR3)."""
    lmdb = importlib.import_module("lmdb")
    for name in ("ffhq_16_128", "celebahq_16_128"):
        folder = clone / "dataset" / name
        folder.mkdir(parents=True, exist_ok=True)
        with lmdb.open(str(folder), map_size=2**30) as store, store.begin(write=True) as writing:
            for number in range(64):
                for key in ("hr_128", "sr_16_128", "lr_16"):
                    made = io.BytesIO()
                    side = 16 if key == "lr_16" else 128
                    pixels = ROLL.integers(0, 256, (side, side, 3), dtype=np.uint8)
                    IMAGE.fromarray(pixels).save(made, "PNG")
                    writing.put(f"{key}_{number:05}".encode(), made.getvalue())
            writing.put(b"length", b"64")


def coco_for_dfine(clone: Path) -> None:
    """COCO's folders with 128 pictures of five boxes each, and the weights of HGNetv2's B4."""
    coco(clone, 128)
    sys.path.insert(0, str(clone))
    net = importlib.import_module("src.nn.backbone.hgnetv2").HGNetv2("B4", pretrained=False)
    (clone / "weight" / "hgnetv2").mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), clone / "weight" / "hgnetv2" / "PPHGNetV2_B4_stage1.pth")


def road_speeds(clone: Path) -> None:
    """4,000 readings of METR-LA's 207 detectors (STGCN)."""
    rows = (",".join(map(str, row)) for row in (ROLL.random((4000, 207)) * 70).round(2))
    (clone / "data" / "metr-la" / "vel.csv").write_text("\n".join(rows) + "\n")


def coco_with_font(clone: Path) -> None:
    """COCO as YOLO reads it, beside the clone, its pictures' font, the weights that it tries AMP with (yolov3)."""
    root = clone.parent / "datasets" / "coco"
    for part in ("train2017", "val2017"):
        names = []
        for number in range(80):
            image(root / "images" / part / f"{number:012}.jpg", 640, 480)
            names.append(f"./images/{part}/{number:012}.jpg")
            labels = root / "labels" / part / f"{number:012}.txt"
            labels.parent.mkdir(parents=True, exist_ok=True)
            labels.write_text("".join(f"{at} 0.{at + 2} 0.{at + 2} 0.2 0.3\n" for at in range(5)))
        (root / f"{part}.txt").write_text("\n".join(names) + "\n")
    sys.path.insert(0, str(clone))
    net = importlib.import_module("models.yolo").Model(str(clone / "models" / "yolov3-tiny.yaml"))
    torch.save({"model": net, "ema": None}, clone / "yolov3-tiny.pt")
    fonts = Path(importlib.import_module("matplotlib").get_data_path()) / "fonts" / "ttf"
    for folder in (clone / "made" / "config", clone / "made" / "config" / "Ultralytics"):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(fonts / "DejaVuSans.ttf", folder / "Arial.ttf")


def mattes(clone: Path) -> None:
    """Films of people with mattes, backgrounds, segmented people and films of them (RobustVideoMatting)."""
    root = clone.parent / "matting-data"
    for part in ("train", "valid"):
        for number in range(24):
            for kind, top in (("fgr", None), ("pha", 256)):
                image(root / "VideoMatte240K_JPEG_SD" / part / kind / "0001" / f"{number:05}.jpg", 768, 432, top)
            image(root / "Backgrounds" / part / f"{number}.png", 768, 512)
            image(root / "BackgroundVideos" / part / "0000" / f"{number:04}.jpg", 768, 432)
    people, films = [], []
    for number in range(32):
        image(root / "coco" / "train2017" / f"{number}.jpg", 640, 480)
        image(root / "coco" / "panoptic_train2017" / f"{number}.png", 640, 480)
        people.append({"file_name": f"{number}.png", "segments_info": [{"id": 1, "category_id": 1}]})
        image(root / "SuperviselyPersonDataset" / "img" / f"{number}.png", 640, 480)
        image(root / "SuperviselyPersonDataset" / "seg" / f"{number}.png", 640, 480, 256)
        image(root / "YouTubeVIS" / "train" / "JPEGImages" / "film" / f"{number:05}.jpg", 640, 480)
        films.append(f"film/{number:05}.jpg")
    (root / "coco" / "annotations").mkdir(exist_ok=True)
    (root / "coco" / "annotations" / "panoptic_train2017.json").write_text(json.dumps({"annotations": people}))
    mask = {"counts": [640 * 200, 640 * 280], "size": [480, 640]}
    one = {"category_id": 26, "video_id": 1, "segmentations": [mask] * len(films)}
    film = {"id": 1, "file_names": films, "height": 480, "width": 640}
    (root / "YouTubeVIS" / "train" / "instances.json").write_text(json.dumps({"annotations": [one], "videos": [film]}))
    torchvision_weights(clone / "made" / "torch", "mobilenet_v3_large-8738ca79.pth", "mobilenet_v3_large")


def sung(clone: Path) -> None:
    """One speaker's 24 and 2 waves with their spectrograms' companions, settings from the template (so-vits-svc)."""
    soundfile = importlib.import_module("soundfile")
    folder = clone / "dataset" / "44k" / "speaker"
    folder.mkdir(parents=True, exist_ok=True)
    (clone / "filelists").mkdir(exist_ok=True)
    for part, count in (("train", 24), ("val", 2)):
        names = [f"./dataset/44k/speaker/{part}{number}.wav" for number in range(count)]
        for name in names:
            soundfile.write(clone / name, ROLL.uniform(-0.5, 0.5, 512 * 400).astype(np.float32), 44100)
            np.save(clone / f"{name}.f0.npy", np.stack([ROLL.uniform(100, 300, 400), np.ones(400)]))
            np.save(clone / f"{name}.vol.npy", ROLL.random(400, dtype=np.float32))
            torch.save(torch.randn(1, 768, 232), clone / f"{name}.soft.pt")
        (clone / "filelists" / f"{part}.txt").write_text("\n".join(names) + "\n")
    text = json.loads((clone / "configs_template" / "config_template.json").read_text())
    text["spk"], text["model"]["n_speakers"] = {"speaker": 0}, 1
    text["model"]["ssl_dim"] = text["model"]["filter_channels"] = text["model"]["gin_channels"] = 768
    text["model"]["speech_encoder"] = "vec768l12"
    (clone / "configs" / "config.json").write_text(json.dumps(text))


def words_and_vocabulary(clone: Path) -> None:
    """4,000 pairs of sentences, their vocabulary, and the command that pip installs (BERT-pytorch)."""
    (clone / "bert").write_text("from bert_pytorch.__main__ import train\n\ntrain()\n")
    for name in ("data", "output"):
        (clone / name).mkdir(exist_ok=True)
    pairs = (
        "\t".join(" ".join(f"w{number}" for number in ROLL.integers(0, 5000, 9)) for _ in range(2)) for _ in range(4000)
    )
    (clone / "data" / "corpus.small").write_text("\n".join(pairs) + "\n")
    sys.path.insert(0, str(clone))
    vocabulary = importlib.import_module("bert_pytorch.dataset.vocab").WordVocab
    with (clone / "data" / "corpus.small").open() as lines:
        vocabulary(lines).save_vocab(clone / "data" / "vocab.small")


def cifar_hundred(clone: Path) -> None:
    """CIFAR-100's files with noise under made/ (temperature_scaling); made/site lets torchvision take them."""
    cifar(clone)
    folder = clone / "made" / "cifar-100-python"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 8000), ("test", 500)):
        pixels = ROLL.integers(0, 256, (count, 3072), dtype=np.uint8)
        labels = [int(label) for label in ROLL.integers(0, 100, count)]
        (folder / part).write_bytes(pickle.dumps({"data": pixels, "fine_labels": labels}))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [str(number) for number in range(100)]}))


def rolls_of_the_road(clone: Path) -> None:
    """604 drives of 40 moments in 96x96 colours (world-models), and the folder that its README makes."""
    for number in range(604):
        folder = clone / "datasets" / "carracing" / f"thread_{number % 8}"
        folder.mkdir(parents=True, exist_ok=True)
        seen = ROLL.integers(0, 256, (40, 96, 96, 3), dtype=np.uint8)
        np.savez(
            folder / f"rollout_{number}.npz",
            observations=seen,
            rewards=np.zeros(40),
            actions=np.zeros((40, 3)),
            terminals=np.zeros(40, dtype=bool),
        )
    (clone / "exp_dir").mkdir(exist_ok=True)


def coco_beside(clone: Path) -> None:
    """COCO as YOLO reads it, beside the clone (PyTorch_YOLOv4)."""
    root = clone.parent / "coco"
    for part in ("train2017", "val2017"):
        for number in range(64):
            image(root / "images" / part / f"{number:012}.jpg", 640, 480)
            labels = root / "labels" / part / f"{number:012}.txt"
            labels.parent.mkdir(parents=True, exist_ok=True)
            labels.write_text("".join(f"{at} 0.{at + 2} 0.{at + 2} 0.2 0.3\n" for at in range(5)))
        names = (f"./images/{part}/{number:012}.jpg" for number in range(64))
        (root / f"{part}.txt").write_text("\n".join(names) + "\n")


def said(clone: Path) -> None:
    """200 sayings of 3 to 9 seconds in Emilia's form (F5-TTS)."""
    soundfile, datasets = importlib.import_module("soundfile"), importlib.import_module("datasets")
    root = clone / "data" / "Emilia_ZH_EN_pinyin"
    (root / "wavs").mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(200):
        name, seconds = str(root / "wavs" / f"{number}.wav"), 3 + number % 7
        soundfile.write(name, ROLL.uniform(-0.5, 0.5, 24000 * seconds).astype(np.float32), 24000)
        rows.append({"audio_path": name, "text": "the quick brown fox jumps " * seconds, "duration": float(seconds)})
    datasets.Dataset.from_list(rows).save_to_disk(str(root / "raw"))
    (root / "duration.json").write_text(json.dumps({"duration": [row["duration"] for row in rows]}))


def freebase(clone: Path) -> None:
    """60,000 triples among Freebase's own entities, and vectors for these (relationPrediction)."""
    folder = clone / "data" / "FB15k-237"
    names = [[line.split()[0] for line in (folder / f"{kind}2id.txt").read_text().splitlines() if len(line.split()) > 1]
             for kind in ("entity", "relation")]  # fmt: skip
    drawn = [ROLL.integers(0, len(names[at]), 60000) for at in (0, 1, 0)]
    triples = [f"{names[0][a]}\t{names[1][b]}\t{names[0][c]}" for a, b, c in zip(*drawn, strict=True)]
    (folder / "train.txt").write_text("\n".join(triples) + "\n")
    vectors = ROLL.normal(0, 0.1, (len(names[0]), 100)).round(5)
    (folder / "entity2vec.txt").write_text("\n".join("\t".join(map(str, row)) for row in vectors) + "\n")
    (clone / "checkpoints" / "fb" / "out").mkdir(parents=True, exist_ok=True)


def places_visited(clone: Path) -> None:
    """Eight of Gowalla's 40,981 places for each of its users (NGCF-PyTorch)."""
    lines = (f"{user} {' '.join(map(str, ROLL.choice(40981, 8, replace=False)))}" for user in range(29858))
    (clone / "Data" / "gowalla" / "train.txt").write_text("\n".join(lines) + "\n")


def brains(clone: Path) -> None:
    """A list (iSeg's) of 1,024 and 128 cubes of two scans and a mask, made from 8, beside the clone (MedicalZoo)."""
    nibabel = importlib.import_module("nibabel")
    folder = clone.parent / "datasets" / "iseg_2017" / "iSeg-2017-Training"
    folder.mkdir(parents=True, exist_ok=True)
    scan = nibabel.analyze.AnalyzeImage(np.zeros((144, 192, 256), dtype=np.int16), np.eye(4))
    nibabel.save(scan, folder / "subject-1-T1.img")
    cubes = []
    for number in range(8):
        names = tuple(str(folder / f"{number}_{kind}.npy") for kind in ("T1", "T2", "seg"))
        for name in names:
            cube = ROLL.integers(0, 4, (64, 64, 64)) if "seg" in name else ROLL.normal(size=(64, 64, 64))
            np.save(name, cube.astype(np.float32))
        cubes.append(names)
    for part, count in (("train", 1024), ("val", 128)):
        listed = pickle.dumps([cubes[number % 8] for number in range(count)])
        (folder / f"iseg2017-list-{part}-samples-{count}.txt").write_bytes(listed)


def smiles_with_vocabulary(clone: Path) -> None:
    """4,000 molecules in SMILES and their signs (REINVENT)."""
    parts = ["C", "c1ccccc1", "C(=O)N", "O", "N", "C(F)(F)", "S", "CC", "C(Cl)"]
    lines = ["".join(ROLL.choice(parts, int(ROLL.integers(5, 14)))) + "C" for _ in range(4000)]
    (clone / "data" / "mols_filtered.smi").write_text("\n".join(lines) + "\n")
    if not (clone / "data" / "Voc").exists():
        signs = ["R", "C", "c", "1", "(", "=", ")", "O", "N", "F", "S", "L"]
        (clone / "data" / "Voc").write_text("\n".join(signs) + "\n")


def detectors(clone: Path) -> None:
    """PEMS08's 17,856 readings of 170 detectors with the hour and the day (BasicTS)."""
    folder = clone / "datasets" / "PEMS08"
    folder.mkdir(parents=True, exist_ok=True)
    shape = (17856, 170, 3)
    np.memmap(folder / "data.dat", dtype=np.float32, mode="w+", shape=shape)[:] = ROLL.random(shape, dtype=np.float32)
    settings = {"INPUT_LEN": 12, "OUTPUT_LEN": 12, "TRAIN_VAL_TEST_RATIO": [0.6, 0.2, 0.2], "NORM_EACH_CHANNEL": False,
                "RESCALE": True, "NULL_VAL": 0.0}  # fmt: skip
    description = {"name": "PEMS08", "shape": shape, "num_time_steps": shape[0], "regular_settings": settings}
    (folder / "desc.json").write_text(json.dumps(description))


def aligned(clone: Path) -> None:
    """3,000 aligned proteins of 200 residues, under the names of the example (EVE)."""
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
    rows = list(csv.DictReader((clone / "data" / "mappings" / "example_mapping.csv").open()))
    focus = "".join(letters[ROLL.integers(0, 20, 200)])
    lines = [">P/1-200", focus]
    for number in range(3000):
        lines += [f">q{number}/1-200", "".join(np.where(ROLL.random(200) < 0.4, letters[ROLL.integers(0, 20, 200)],
                                                        list(focus)))]  # fmt: skip
    (clone / "data" / "MSA").mkdir(exist_ok=True)
    (clone / "data" / "MSA" / rows[0]["msa_location"]).write_text("\n".join(lines) + "\n")


def imagenet_with_quantizer(clone: Path) -> None:
    """ImageNet's folders with 1,200 pictures where VAR looks for them, and its quantizer's weights."""
    for part, count in (("train", 1200), ("val", 40)):
        for number in range(count):
            file = clone.parent / "made" / "imagenet" / part / f"n{number % 10}" / f"{number}.JPEG"
            image(file, 300, 300)
    sys.path.insert(0, str(clone))
    net = importlib.import_module("models").VQVAE(vocab_size=4096, z_channels=32, ch=160, test_mode=True,
        share_quant_resi=4, v_patch_nums=(1, 2, 3, 4, 5, 6, 8, 10, 13, 16))  # fmt: skip
    torch.save(net.state_dict(), clone / "vae_ch160v4096z32.pth")


def coco_lists(clone: Path) -> None:
    """Lists of 256 and 64 pictures with a text file of five boxes beside each, and settings (Yolo-FastestV2)."""
    text = (clone / "data" / "coco.data").read_text()
    for part, count in (("train", 256), ("val", 64)):
        names = [str(clone / "made" / part / f"{number:012}.jpg") for number in range(count)]
        for name in names:
            image(Path(name), 640, 480)
            boxes = "".join(f"{at} 0.{at + 2} 0.{at + 2} 0.2 0.3\n" for at in range(5))
            Path(name).with_suffix(".txt").write_text(boxes)
        (clone / "made" / f"{part}2017.txt").write_text("\n".join(names) + "\n")
    (clone / "made" / "coco.data").write_text(re.sub(r"=.*/((?:train|val)2017.txt)", r"=made/\1", text))


def clicks_in_shops(clone: Path) -> None:
    """6,000 sessions of 2 to 9 clicks among Diginetica's articles, their graph by its own command (GCE-GNN)."""
    folder = clone / "datasets" / "diginetica"
    sessions = [[int(one) for one in ROLL.integers(1, 43098, int(ROLL.integers(2, 10)))] for _ in range(6000)]
    (folder / "train.txt").write_bytes(pickle.dumps((sessions, [session[0] for session in sessions])))
    subprocess.run([sys.executable, "build_graph.py", "--dataset", "diginetica", "--sample_num", "12"], cwd=clone,
                   check=True)  # fmt: skip


def shaped_coco(clone: Path) -> None:
    """COCO's folders with 24 pictures of five shapes each (PyTorch-Simple-MaskRCNN)."""
    coco(clone)
    for file in (clone / "made" / "coco" / "annotations").glob("instances_*.json"):
        read = json.loads(file.read_text())
        for one in read["annotations"]:
            x, y, wide, high = one["bbox"]
            one["segmentation"] = [[x, y, x + wide, y, x + wide, y + high, x, y + high]]
        file.write_text(json.dumps(read))


def _pictures_with_classes(clone: Path) -> None:
    """VOC2007's folders with 64 pictures and their classes, as bubbliiiing's nets for segmentation read them."""
    root = clone / "VOCdevkit" / "VOC2007"
    names = [f"{number:06}" for number in range(64)]
    for name in names:
        image(root / "JPEGImages" / f"{name}.jpg", 500, 375)
        image(root / "SegmentationClass" / f"{name}.png", 500, 375, 21)
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True, exist_ok=True)
    for part, chosen in (("train", names[:48]), ("val", names[48:])):
        (lists / f"{part}.txt").write_text("".join(f"{name}\n" for name in chosen))


def voc_classes(clone: Path) -> None:
    """VOC2007's folders with 64 pictures and their classes, and random weights of the net (deeplabv3-plus-pytorch)."""
    _pictures_with_classes(clone)
    sys.path.insert(0, str(clone))
    net = importlib.import_module("nets.deeplabv3_plus").DeepLab(
        num_classes=21, backbone="mobilenet", downsample_factor=8, pretrained=False
    )
    torch.save(net.state_dict(), clone / "model_data" / "deeplab_mobilenetv2.pth")


def yelp(clone: Path) -> None:
    """What 29,601 people said of 24,734 places, 500,000 times, and 50,000 more (LightGCL)."""
    sparse = importlib.import_module("scipy.sparse")
    for name, count in (("trnMat", 500_000), ("tstMat", 50_000)):
        at = np.unique(np.stack([ROLL.integers(0, 29_601, count), ROLL.integers(0, 24_734, count)]), axis=1)
        made = sparse.coo_matrix((np.ones(at.shape[1]), (at[0], at[1])), shape=(29_601, 24_734))
        file = clone / "data" / "yelp" / f"{name}.pkl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps(made))


def households(clone: Path) -> None:
    """100,000 of POWER's minutes, eight figures each (pytorch-flows)."""
    (clone / "data" / "power").mkdir(parents=True, exist_ok=True)
    np.save(clone / "data" / "power" / "data.npy", ROLL.random((100_000, 8)))


def ett_second(clone: Path) -> None:
    """ETTm2: seven columns, every quarter of an hour for 20 months (ETSformer)."""
    columns = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    days(clone / "dataset" / "ETT-small" / "ETTm2.csv", columns, 20 * 30 * 24 * 4, dt.timedelta(minutes=15))


def colors(clone: Path) -> None:
    """10,500 graphs of 4 to 24 coloured nodes in the text form of TUDataset (graph_nn)."""
    raw = clone / "data" / "COLORS-3" / "COLORS-3" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    sizes = ROLL.integers(4, 25, 10_500)
    ends = np.cumsum(sizes)
    ring = ((at, at + 1 if at < end else end - size + 1) for size, end in zip(sizes, ends, strict=True)
            for at in range(end - size + 1, end + 1))  # fmt: skip
    colours = [", ".join(str(float(colour == to)) for to in range(3)) for colour in range(3)]
    lines = {
        "A": (f"{one}, {other}\n{other}, {one}" for one, other in ring),
        "graph_indicator": np.repeat(np.arange(1, len(sizes) + 1), sizes),
        "graph_labels": ROLL.integers(0, 11, len(sizes)),
        "node_attributes": (f"{at % 2}, {colours[at % 3]}" for at in range(ends[-1])),
    }
    for name, of in lines.items():
        (raw / f"COLORS-3_{name}.txt").write_text("\n".join(map(str, of)) + "\n")


def reviews(clone: Path) -> None:
    """What 31,668 people said of 38,048 places, 300,000 times, and 30,000 more (SELFRec)."""
    folder = clone / "dataset" / "yelp2018"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 300_000), ("test", 30_000)):
        pairs = zip(ROLL.integers(0, 31_668, count), ROLL.integers(0, 38_048, count), strict=True)
        (folder / f"{part}.txt").write_text("".join(f"{user} {place} 1\n" for user, place in pairs))


def drugs_and_targets(clone: Path) -> None:
    """640, 96 and 96 pairs of a molecule and a protein of 200 to 600 residues (MolTrans)."""
    folder = clone / "dataset" / "BIOSNAP" / "full_data"
    folder.mkdir(parents=True, exist_ok=True)
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
    parts = np.array(["C", "c1ccccc1", "C(=O)N", "O", "N", "S", "CC"])
    for part, count in (("train", 640), ("val", 96), ("test", 96)):
        with (folder / f"{part}.csv").open("w", newline="") as opened:
            table = csv.writer(opened)
            table.writerow(["", "SMILES", "Target Sequence", "Label"])
            for at in range(count):
                protein = "".join(letters[ROLL.integers(0, 20, int(ROLL.integers(200, 600)))])
                table.writerow([at, "".join(ROLL.choice(parts, int(ROLL.integers(3, 12)))), protein, at % 2])


def nine_atoms(clone: Path) -> None:
    """A thousand molecules of at most nine atoms by the repository's own class, and its two scores (MolGAN-pytorch)."""
    chem = importlib.import_module("rdkit.Chem")
    parts = ["C", "CC", "C(=O)", "O", "N", "C=C", "C#C"]
    with chem.SDWriter(str(clone / "data" / "gdb9.sdf")) as written:
        for at in range(1000):
            written.write(chem.MolFromSmiles("C" * (1 + at % 3) + "".join(ROLL.choice(parts, 3)) + "C"))
    for name, score in (("NP", dict.fromkeys(range(64), 0.5)), ("SA", [[0.5, *range(64)]])):
        with gzip.open(clone / "data" / f"{name}_score.pkl.gz", "wb") as scores:
            scores.write(pickle.dumps(score))
    sys.path.insert(0, str(clone / "data"))
    molecules = importlib.import_module("sparse_molecular_dataset").SparseMolecularDataset()
    molecules.generate(str(clone / "data" / "gdb9.sdf"), filters=lambda one: one.GetNumAtoms() <= 9)
    molecules.save(str(clone / "data" / "gdb9_9nodes.sparsedataset"))


def flowers(clone: Path) -> None:
    """64 pictures in a folder of the data set's name (simple-diffusion)."""
    for number in range(64):
        image(clone / "huggan" / "flowers-102-categories" / "train" / f"{number}.jpg", 500, 500)


def bytes_of_wikipedia(clone: Path) -> None:
    """Two million bytes of text in enwik8's file (former)."""
    with gzip.open(clone / "data" / "enwik8.gz", "wb") as written:
        written.write(ROLL.integers(32, 127, 2_000_000, dtype=np.uint8).tobytes())


def _lists_with_boxes(clone: Path) -> None:
    """Lists of 64 and 32 pictures with five boxes each, as bubbliiiing's detectors read them."""
    for part, count in (("train", 64), ("val", 32)):
        names = [clone / "made" / part / f"{number}.jpg" for number in range(count)]
        for name in names:
            image(name, 500, 375)
        boxes = " ".join(f"{20 * at},{30 * at},{20 * at + 90},{30 * at + 120},{at}" for at in range(5))
        (clone / f"2007_{part}.txt").write_text("".join(f"{name} {boxes}\n" for name in names))


def boxes_of_voc(clone: Path) -> None:
    """Lists of 64 and 32 pictures with five boxes each, and random weights of the net (yolo3-pytorch)."""
    _lists_with_boxes(clone)
    sys.path.insert(0, str(clone))
    net = importlib.import_module("nets.yolo").YoloBody([[6, 7, 8], [3, 4, 5], [0, 1, 2]], 20)
    torch.save(net.state_dict(), clone / "model_data" / "yolo_weights.pth")


def glands(clone: Path) -> None:
    """40 and 8 pictures of tissue and their masks, 128 x 128 (Medical-Transformer)."""
    for part, count in (("train", 40), ("val", 8)):
        for number in range(count):
            image(clone / "made" / part / "img" / f"{number}.png", 128, 128)
            image(clone / "made" / part / "labelcol" / f"{number}.png", 128, 128, 256)


def spoofs(clone: Path) -> None:
    """ASVspoof 2019's folders with 96, 24 and 24 sayings of five seconds (aasist)."""
    soundfile = importlib.import_module("soundfile")
    lists = clone / "LA" / "ASVspoof2019_LA_cm_protocols"
    lists.mkdir(parents=True, exist_ok=True)
    for part, kind, count in (("train", "trn", 96), ("dev", "trl", 24), ("eval", "trl", 24)):
        folder = clone / "LA" / f"ASVspoof2019_LA_{part}" / "flac"
        folder.mkdir(parents=True, exist_ok=True)
        names = [f"LA_{part[0].upper()}_{number:07}" for number in range(count)]
        for name in names:
            soundfile.write(folder / f"{name}.flac", ROLL.uniform(-0.5, 0.5, 80_000).astype(np.float32), 16000)
        rows = (f"LA_0001 {name} - - {('bonafide', 'spoof')[at % 2]}\n" for at, name in enumerate(names))
        (lists / f"ASVspoof2019.LA.cm.{part}.{kind}.txt").write_text("".join(rows))


def older_gym(clone: Path) -> None:
    """The gym that the requirements of Popular-RL-Algorithms name."""
    _install_older(clone, "gym==0.10.9")


def older_mujoco(clone: Path) -> None:
    """A pair of MuJoCo and its control suite that know each other (dreamer-pytorch)."""
    _install_older(clone, "mujoco==3.3.3", "dm_control==1.0.31")


def _weights_of_net(clone: Path, module: str, net: str, file: str, **settings: object) -> None:
    """Random weights at model_data/`file`: the state of `net` of the clone's `module`, built with `settings`."""
    sys.path.insert(0, str(clone))
    torch.save(getattr(importlib.import_module(module), net)(**settings).state_dict(), clone / "model_data" / file)


def boxes_with_weights(clone: Path, module: str, net: str, file: str, **settings: object) -> None:
    """Both of the above."""
    _lists_with_boxes(clone)
    _weights_of_net(clone, module, net, file, **settings)


def boxes_for_yolox(clone: Path) -> None:
    """Lists of 64 and 32 pictures with five boxes each, and random weights of the net (yolox-pytorch)."""
    _lists_with_boxes(clone)
    _weights_of_net(clone, "nets.yolo", "YoloBody", "yolox_s.pth", num_classes=20, phi="s")


def classes_for_segformer(clone: Path) -> None:
    """VOC2007's folders with 64 pictures and their classes, and random weights of the net (segformer-pytorch)."""
    _pictures_with_classes(clone)
    file = "segformer_b0_weights_voc.pth"
    _weights_of_net(clone, "nets.segformer", "SegFormer", file, num_classes=21, phi="b0", pretrained=False)


def perceived(clone: Path, weights: Path) -> None:
    """Random weights of VGG-16 and of LPIPS' layers on it, in the folder `weights` of the clone."""
    torchvision_weights(clone / "made" / "torch", "vgg16-397923af.pth", "vgg16")
    weights.mkdir(parents=True, exist_ok=True)
    sizes = (64, 128, 256, 512, 512)
    layers = {f"lin{at}.model.1.weight": torch.rand(1, size, 1, 1) for at, size in enumerate(sizes)}
    torch.save(layers, weights / "vgg.pth")


def digits_with_perception(clone: Path) -> None:
    """600 digits as pictures in a folder for each, and LPIPS' weights (StableDiffusion-PyTorch)."""
    for number in range(600):
        image(clone / "data/mnist/train/images" / str(number % 10) / f"{number}.png", 28, 28, 255)
    perceived(clone, clone / "models" / "weights" / "v0.1")


def characters(clone: Path) -> None:
    """Two million and twice 200,000 of enwik8's 205 bytes, as awd-lstm-lm's own script writes them."""
    folder = clone / "data" / "enwik8"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 2_000_000), ("valid", 200_000), ("test", 200_000)):
        (folder / f"{part}.txt").write_text(" ".join(map(str, ROLL.integers(0, 205, count))))


def places_rated(clone: Path) -> None:
    """400,000 visits of Gowalla's 25,557 people to 19,747 places (SSLRec)."""
    file = clone / "datasets" / "general_cf" / "sparse_gowalla"
    sparse = importlib.import_module("scipy.sparse")
    known = pickle.loads((file / "valid_mat.pkl").read_bytes())  # noqa: S301 - the repository's own file
    where = tuple(ROLL.integers(0, size, 400_000) for size in known.shape)
    made = sparse.coo_matrix((np.ones(400_000), where), shape=known.shape)
    (file / "train_mat.pkl").write_bytes(pickle.dumps(made))


def orbitals(clone: Path) -> None:
    """QuantumDeepField's own molecules, prepared by its own command."""
    command = [sys.executable, "preprocess.py", "QM9under7atoms_atomizationenergy_eV", "6-31G", "0.75", "0.3"]
    subprocess.run(command, check=True, cwd=clone / "train")


def speeds_with_hours(clone: Path) -> None:
    """4,000 readings of METR-LA's 207 detectors with their hour (STGCN-PyTorch)."""
    np.save(clone / "data" / "adj_mat.npy", ROLL.random((207, 207), dtype=np.float32))
    np.save(clone / "data" / "node_values.npy", ROLL.random((4000, 207, 2), dtype=np.float32))


def molecules_in_space(clone: Path) -> None:
    """molecularGNN_3Dstructure's own molecules for tests, for training too."""
    folder = clone / "dataset" / "QM9_under14atoms"
    shutil.copy(folder / "data_test.txt", folder / "data_train.txt")


def black_or_white(clone: Path) -> None:
    """2,000 and 500 digits of bits (pytorch-made)."""
    train, valid = (ROLL.integers(0, 2, (count, 784)).astype(np.float32) for count in (2000, 500))
    np.savez(clone / "binarized_mnist.npz", train_data=train, valid_data=valid)


def faces_in_folder(clone: Path) -> None:
    """400 pictures of one kind under made/ (glow-pytorch)."""
    for number in range(400):
        image(clone / "made" / "0" / f"{number}.png", 96, 96)


def corpus_with_vocabulary(clone: Path) -> None:
    """20,000 and 2,000 lines of 63 words out of 8,000, with these (GPT2)."""
    folder = clone / "build"
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("<unk>\n" + "".join(f"w{at}\n" for at in range(8000)))
    for part, count in (("train", 20_000), ("test", 2_000)):
        rows = ROLL.integers(0, 8000, (count, 60))
        (folder / f"corpus.{part}.txt").write_text("".join(" ".join(f"w{at}" for at in row) + "\n" for row in rows))


def ripples(clone: Path) -> None:
    """1,500 people's 40 ratings each of MovieLens' films, 60,000 triples on these, and both prepared (RippleNet)."""
    folder = clone / "data" / "movie"
    rows = [line.split("\t") for line in (folder / "item_index2entity_id_rehashed.txt").read_text().splitlines()]
    films, entities = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    rated = (f"{who}::{film}::{ROLL.integers(1, 6)}::97\n" for who in range(1, 1501) for film in ROLL.choice(films, 40))
    (folder / "ratings.dat").write_text("".join(rated))
    for part in ("kg_part1_rehashed.txt", "kg_part2_rehashed.txt"):
        triples = (f"{one}\trel{ROLL.integers(12)}\t{ROLL.integers(60_000)}\n" for one in ROLL.choice(entities, 30_000))
        (folder / part).write_text("".join(triples))
    subprocess.run([sys.executable, "preprocess.py", "--dataset", "movie"], check=True, cwd=clone / "src")


def sessions_beside(clone: Path) -> None:
    """3,000 and 500 sessions of 1 to 11 clicks on 309 articles, beside the clone (TAGNN)."""
    folder = clone.parent / "datasets" / "sample"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 3000), ("test", 500)):
        clicks = [ROLL.integers(1, 310, ROLL.integers(1, 12)).tolist() for _ in range(count)]
        (folder / f"{part}.txt").write_bytes(pickle.dumps((clicks, ROLL.integers(1, 310, count).tolist())))


def ett_in_dataset(clone: Path) -> None:
    """ETTh1 and ETTm1 under dataset/ (SegRNN, FreTS)."""
    columns = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    days(clone / "dataset" / "ETTh1.csv", columns, 17420, dt.timedelta(hours=1))
    days(clone / "dataset" / "ETTm1.csv", columns, 69680, dt.timedelta(minutes=15))


def electricity(clone: Path) -> None:
    """What 321 clients used in 3,000 hours (Koopa)."""
    columns = [*map(str, range(320)), "OT"]
    days(clone / "dataset" / "electricity" / "electricity.csv", columns, 3000, dt.timedelta(hours=1))


def faces_with_perception(clone: Path) -> None:
    """48 pictures where CelebA-HQ's are, and LPIPS' weights (DiT-PyTorch)."""
    for number in range(48):
        image(clone / "data" / "CelebAMask-HQ" / "CelebA-HQ-img" / f"{number}.jpg", 256, 256)
    perceived(clone, clone / "model" / "weights" / "v0.1")


def classes_for_pspnet(clone: Path) -> None:
    """VOC2007's folders with 64 pictures and their classes, and random weights of the net (pspnet-pytorch)."""
    _pictures_with_classes(clone)
    sizes = {"num_classes": 21, "backbone": "mobilenet", "downsample_factor": 16}
    file = "pspnet_mobilenetv2.pth"
    _weights_of_net(clone, "nets.pspnet", "PSPNet", file, **sizes, pretrained=False, aux_branch=False)


def boxes_for_ssd(clone: Path) -> None:
    """Lists of 64 and 32 pictures with five boxes each, and random weights of the net (ssd-pytorch)."""
    _lists_with_boxes(clone)
    _weights_of_net(clone, "nets.ssd", "SSD300", "ssd_weights.pth", num_classes=21, backbone_name="vgg")


def boxes_for_retinanet(clone: Path) -> None:
    """Lists of 64 and 32 pictures with five boxes each, and random weights of the net (retinanet-pytorch)."""
    _lists_with_boxes(clone)
    _weights_of_net(clone, "nets.retinanet", "retinanet", "retinanet_resnet50.pth", num_classes=20, phi=2)


def boxes_for_yolov5(clone: Path) -> None:
    """Lists of 64 and 32 pictures with five boxes each, and random weights of the net (yolov5-pytorch)."""
    _lists_with_boxes(clone)
    masks = [[6, 7, 8], [3, 4, 5], [0, 1, 2]]
    _weights_of_net(clone, "nets.yolo", "YoloBody", "yolov5_s.pth", anchors_mask=masks, num_classes=20, phi="s")


def mixtures(clone: Path) -> None:
    """60 and 12 mixtures of two voices of four seconds, and their lists (TasNet)."""
    soundfile = importlib.import_module("soundfile")
    for part, count in (("tr", 60), ("cv", 12)):
        for voice in ("mix", "s1", "s2"):
            files = [clone / "made" / "wav" / part / voice / f"{number}.wav" for number in range(count)]
            files[0].parent.mkdir(parents=True, exist_ok=True)
            for file in files:
                soundfile.write(file, ROLL.uniform(-0.5, 0.5, 32_000).astype(np.float32), 8000)
            (clone / "made" / part).mkdir(parents=True, exist_ok=True)
            (clone / "made" / part / f"{voice}.json").write_text(json.dumps([(str(file), 32_000) for file in files]))
    (clone / "made" / "out").mkdir(exist_ok=True)


def bytes_of_example(clone: Path) -> None:
    """95 million random bytes where the example's enwik8 stands (reformer-pytorch, performer-pytorch)."""
    folder = clone / "examples" / "enwik8_simple" / "data"
    folder.mkdir(exist_ok=True)
    with gzip.open(folder / "enwik8.gz", "wb", compresslevel=1) as file:
        file.write(ROLL.integers(32, 127, 95_000_000, dtype=np.uint8).tobytes())


def boxes_for_yolov7(clone: Path) -> None:
    """Lists of 64 and 32 pictures with five boxes each, and random weights of the net (yolov7-pytorch)."""
    _lists_with_boxes(clone)
    masks = [[6, 7, 8], [3, 4, 5], [0, 1, 2]]
    _weights_of_net(clone, "nets.yolo", "YoloBody", "yolov7_weights.pth", anchors_mask=masks, num_classes=20, phi="l")


def streets_in_datasets(clone: Path) -> None:
    """Cityscapes' folders with 24 pictures of 2048x1024 in each of two parts (Fast-SCNN-pytorch)."""
    for part in ("train", "val"):
        for at in range(24):
            root = clone / "datasets" / "citys"
            image(root / "leftImg8bit" / part / "ulm" / f"ulm_{at:06}_leftImg8bit.png", 2048, 1024)
            image(root / "gtFine" / part / "ulm" / f"ulm_{at:06}_gtFine_labelIds.png", 2048, 1024, 34)


def spoken_characters(clone: Path) -> None:
    """200 and 40 sayings of 400 to 700 frames in Kaldi's archives, with their characters (Speech-Transformer)."""
    folder = clone / "egs" / "aishell" / "made"
    folder.mkdir(parents=True, exist_ok=True)
    kaldi = importlib.import_module("kaldi_io")
    marks = ["<blank>", "<unk>", "<sos>", "<eos>", *map(chr, range(0x4E00, 0x4E00 + 4227))]
    (folder / "train_chars.txt").write_text("".join(f"{mark} {at}\n" for at, mark in enumerate(marks)))
    for part, count in (("train", 200), ("dev", 40)):
        said = {}
        archive = folder / f"{part}.ark"
        with archive.open("wb") as file:
            for at in range(count):
                frames, letters = int(ROLL.integers(400, 700)), ROLL.integers(4, 4231, int(ROLL.integers(8, 20)))
                file.write(f"u{at} ".encode())
                place = file.tell()
                kaldi.write_mat(file, ROLL.standard_normal((frames, 80)).astype(np.float32))
                said[f"u{at}"] = {
                    "input": [{"feat": f"{archive}:{place}", "name": "input1", "shape": [frames, 80]}],
                    "output": [
                        {
                            "name": "target1",
                            "shape": [len(letters), 4231],
                            "text": "x",
                            "token": "x",
                            "tokenid": " ".join(map(str, letters)),
                        }
                    ],
                    "utt2spk": "s",
                }
        (folder / f"{part}.json").write_text(json.dumps({"utts": said}))


def freebase_of_237(clone: Path) -> None:
    """272,115 random triples of FB15k-237's 14,541 entities and 237 relations, each of which occurs (TuckER)."""
    folder = clone / "data" / "FB15k-237"
    for part, count in (("train", 272_115), ("valid", 17_535), ("test", 20_466)):
        heads, tails = ROLL.integers(0, 14_541, count), ROLL.integers(0, 14_541, count)
        by = ROLL.integers(0, 237, count)
        if part == "train":
            heads[:14_541], by[:237] = np.arange(14_541), np.arange(237)
        rows = (f"/m/{head}\t/r/{one}\t/m/{tail}\n" for head, one, tail in zip(heads, by, tails, strict=True))
        (folder / f"{part}.txt").write_text("".join(rows))


def posts(clone: Path) -> None:
    """60,000 posts of 10,000 people to 984 places in a month, with 172 figures each (jodie).

    made/site has a gpustat for the truth alone: the stubbed driver answers none of its questions.
    """
    (clone / "data").mkdir(exist_ok=True)
    (clone / "saved_models" / "reddit").mkdir(parents=True, exist_ok=True)
    times = np.sort(ROLL.uniform(0, 2_678_373, 60_000))
    with (clone / "data" / "reddit.csv").open("w") as file:
        file.write("user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n")
        for at, when in enumerate(times):
            who, place = (at, at % 984) if at < 10_000 else (int(ROLL.integers(10_000)), int(ROLL.integers(984)))
            figures = ",".join(f"{one:.3f}" for one in ROLL.standard_normal(172))
            file.write(f"{who},{place},{when:.1f},{int(ROLL.random() < 0.001)},{figures}\n")
    (clone / "made" / "site").mkdir(parents=True, exist_ok=True)
    (clone / "made" / "site" / "gpustat.py").write_text(
        "class GPUStatCollection:\n    @classmethod\n    def new_query(cls):\n        return cls()\n\n"
        "    def jsonify(self):\n        return {'gpus': [{'memory.used': 0}]}\n"
    )


def counted_cells(clone: Path) -> None:
    """2,000 cells' counts of 3,000 genes (scDeepCluster)."""
    (clone / "made").mkdir(exist_ok=True)
    with importlib.import_module("h5py").File(clone / "made" / "data.h5", "w") as file:
        file["X"] = ROLL.poisson(1.0, (2000, 3000)).astype(np.float32)


def mnist_in_data(clone: Path) -> None:
    """MNIST's files with noise where DL-Demos and VAE-CVAE-MNIST keep them."""
    for root in ("data", "data/mnist"):
        idx_images(clone / root / "MNIST" / "raw")


def headlines(clone: Path) -> None:
    """20,000 headlines with their classes, BERT's Chinese vocabulary in size and random weights (Bert-Chinese)."""
    folder = clone / "bert_pretrain"
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(0x4E00, 0x4E00 + 21_123))]
    (folder / "vocab.txt").write_text("\n".join(marks) + "\n")
    sizes = {
        "vocab_size": 21128,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
    }
    (folder / "bert_config.json").write_text(json.dumps(sizes))
    sys.path.insert(0, str(clone))
    made = importlib.import_module("pytorch_pretrained.modeling")
    torch.save(made.BertModel(made.BertConfig.from_dict(sizes)).state_dict(), folder / "pytorch_model.bin")
    rows = ("".join(map(chr, ROLL.integers(0x4E00, 0x9000, 20))) + f"\t{at % 10}\n" for at in range(20_000))
    (clone / "THUCNews" / "data" / "train.txt").write_text("".join(rows))
    (clone / "THUCNews" / "saved_dict").mkdir(exist_ok=True)


def labelled_pictures(clone: Path) -> None:
    """192 and 96 pictures with two boxes each beside them, and settings that name them (FastestDet)."""
    made = clone / "made"
    for part, count in (("train", 192), ("val", 96)):
        names = [made / part / f"{at:06}.jpg" for at in range(count)]
        for name in names:
            image(name, 500, 375)
            name.with_suffix(".txt").write_text("11 0.3 0.3 0.3 0.4\n14 0.6 0.6 0.3 0.5\n")
        (made / f"{part}.txt").write_text("".join(f"{name}\n" for name in names))
    text = (clone / "configs" / "coco.yaml").read_text()
    for part in ("train", "val"):
        text = re.sub(rf'"[^"]*/{part}2017.txt"', f'"{made}/{part}.txt"', text)
    (made / "coco.yaml").write_text(text)


def older_mujoco_for_gym(clone: Path) -> None:
    """The MuJoCo that gym 0.26 knows (TD7)."""
    _install_older(clone, "gym==0.25.2", "mujoco==2.3.7")


def noisy_voices(clone: Path) -> None:
    """240 and 24 sayings of two seconds, clean and noisy, and settings that name their lists (Wave-U-Net)."""
    soundfile = importlib.import_module("soundfile")
    made = clone / "made"
    text = (clone / "config" / "train" / "train.json").read_text()
    for part, count in (("train", 240), ("test", 24)):
        pairs = []
        for at in range(count):
            names = [made / part / kind / f"{at}.wav" for kind in ("noisy", "clean")]
            for name in names:
                name.parent.mkdir(parents=True, exist_ok=True)
                soundfile.write(name, ROLL.uniform(-0.5, 0.5, 32_000).astype(np.float32), 16000)
            pairs.append(f"{names[0]} {names[1]}")
        (made / f"{part}.txt").write_text("\n".join(pairs) + "\n")
        text = text.replace(f"~/Datasets/SEGAN_Dataset/{part}_dataset.txt", str(made / f"{part}.txt"))
    text = text.replace("~/Experiments/Wave-U-Net", str(made / "out")).replace('"num_workers": 40', '"num_workers": 2')
    (made / "train.json").write_text(text)


def unwanted_articles(clone: Path) -> None:
    """99 articles that each of its own users did not buy (FMLP-Rec)."""
    users = [line.split()[0] for line in (clone / "data" / "Beauty.txt").read_text().splitlines()]
    rows = (f"{user} " + " ".join(map(str, ROLL.integers(1, 12_102, 99))) + "\n" for user in users)
    (clone / "data" / "Beauty_sample.txt").write_text("".join(rows))


def one_machine(clone: Path) -> None:
    """What 38 gauges of a server read, 20,000 times and 5,000 times, as its preprocess.py leaves it (mtad-gat)."""
    folder = clone / "datasets" / "ServerMachineDataset" / "processed"
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", 20_000), ("test", 5_000)):
        (folder / f"machine-1-1_{part}.pkl").write_bytes(pickle.dumps(ROLL.random((rows, 38), dtype=np.float32)))
    labels = ROLL.integers(0, 2, 5_000).astype(np.float32)
    (folder / "machine-1-1_test_label.pkl").write_bytes(pickle.dumps(labels))


def boxes_for_centernet(clone: Path) -> None:
    """Lists of 64 and 32 pictures with five boxes each, and random weights of the net (centernet-pytorch)."""
    _lists_with_boxes(clone)
    _weights_of_net(clone, "nets.centernet", "CenterNet_Resnet50", "centernet_resnet50_voc.pth", num_classes=20)


def views_of_shops(clone: Path) -> None:
    """12,000 and 2,000 views of 2 to 19 of Diginetica's 43,097 articles (NARM)."""
    folder = clone / "datasets" / "diginetica"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 12_000), ("test", 2_000)):
        seen = [ROLL.integers(1, 43_098, ROLL.integers(2, 20)).tolist() for _ in range(count)]
        (folder / f"{part}.txt").write_bytes(pickle.dumps((seen, ROLL.integers(1, 43_098, count).tolist())))


def sensors_of_roads(clone: Path) -> None:
    """307 sensors' three figures 3,000 times, which its own prepareData.py cuts (ASTGCN-2019-pytorch)."""
    folder = clone / "data" / "PEMS04"
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "PEMS04.npz", data=ROLL.random((3000, 307, 3)))
    rows = (f"{at},{int(ROLL.integers(307))},{ROLL.uniform(10, 900):.1f}\n" for at in range(307))
    (folder / "distance.csv").write_text("from,to,cost\n" + "".join(rows))
    how = ["--config", "configurations/PEMS04_astgcn.conf"]
    subprocess.run([sys.executable, "prepareData.py", *how], check=True, cwd=clone)


def bytes_of_memory(clone: Path) -> None:
    """95 million random bytes in enwik8's file (recurrent-memory-transformer-pytorch)."""
    with gzip.open(clone / "data" / "enwik8.gz", "wb", compresslevel=1) as file:
        file.write(ROLL.integers(32, 127, 95_000_000, dtype=np.uint8).tobytes())


def _install_older(clone: Path, *packages: str) -> None:
    """Put `packages` into made/old, which goes before what is installed."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(clone / "made" / "old"), *packages], check=True)


MAKERS = {
    one.__name__: one
    for one in (coco, yolo_coco, duts, ett_hours, mutag, vocoder_frames, proteins, named_images,
               episodes, mnist_of_pyro, exchange_rates, wavs_with_frames, rates_of_weather, traffic, ett_minutes,
                cifar, cifar_of_cfm, mnist, bought, lesions, series, faces, charged_bodies, voc, molecules, voices,
                triples, voc_boxes, streets, ratings, machines, cifar_in_dataset, encoded_meals, turned_heads,
                scenes, loops, conformers, drives, faces_with_landmarks, visits,
                digits, films_with_masks, spoken_frames, noise_series, energies, energies_with_copper,
                mnist_beside, voc_lists, scans, libri_lists, sample_visits, compiled_sampler,
                bytes_of_text, small_and_large_faces,
                coco_for_dfine, road_speeds, coco_with_font, mattes, sung, words_and_vocabulary, cifar_hundred,
                rolls_of_the_road, coco_beside,  said, freebase, places_visited, brains,
                smiles_with_vocabulary, detectors, aligned, imagenet_with_quantizer,
 coco_lists, clicks_in_shops, shaped_coco, voc_classes, yelp, households, ett_second,
                colors, reviews, drugs_and_targets, nine_atoms, flowers, bytes_of_wikipedia, boxes_of_voc, glands,
                spoofs, older_gym, older_mujoco, boxes_for_yolox, classes_for_segformer, digits_with_perception,
                characters, places_rated, orbitals, speeds_with_hours, molecules_in_space, black_or_white,
                faces_in_folder, corpus_with_vocabulary, ripples, sessions_beside, ett_in_dataset, electricity,
                faces_with_perception, classes_for_pspnet, boxes_for_ssd, boxes_for_retinanet, boxes_for_yolov5,
                mixtures, bytes_of_example,
                boxes_for_yolov7, streets_in_datasets, spoken_characters, freebase_of_237,
                posts, counted_cells, mnist_in_data, headlines, labelled_pictures,
                older_mujoco_for_gym, noisy_voices, unwanted_articles, one_machine,
                boxes_for_centernet, views_of_shops, sensors_of_roads, bytes_of_memory)
}  # fmt: skip
