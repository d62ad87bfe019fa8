"""Pictures, scans and films made up for the scripts of rounds.toml: random, in the formats that they read."""

import importlib
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.scripts.rounds_data import ROLL, boxes_with_weights, cifar, image


def boxes_for_yolov8(clone: Path) -> None:
    """Lists of 64 and 32 pictures with five boxes each, and random weights of the net (yolov8-pytorch)."""
    shape = [640, 640]
    boxes_with_weights(clone, "nets.yolo", "YoloBody", "yolov8_s.pth", input_shape=shape, num_classes=20, phi="s")


def texts_in_scenes(clone: Path) -> None:
    """ICDAR 2015's folders beside the clone with 60 scenes of three texts each, and VGG-16's random weights (EAST)."""
    root = clone.parent / "ICDAR_2015"
    (root / "train_gt").mkdir(parents=True, exist_ok=True)
    for at in range(60):
        image(root / "train_img" / f"img_{at}.jpg", 1280, 720)
        corners = ((100 + 300 * k, 100 + 150 * k) for k in range(3))
        rows = [f"{x},{y},{x + 200},{y},{x + 200},{y + 60},{x},{y + 60},text" for x, y in corners]
        (root / "train_gt" / f"gt_img_{at}.txt").write_text("\n".join(rows) + "\n")
    (clone / "pths").mkdir(exist_ok=True)
    sys.path.insert(0, str(clone))
    model: Any = importlib.import_module("model")
    net = model.VGG(model.make_layers(model.cfg, batch_norm=True))
    torch.save(net.state_dict(), clone / "pths" / "vgg16_bn-6c64b313.pth")


def slices_of_hearts(clone: Path) -> None:
    """ACDC's slices and scans, by the lists that the clone has (SSL4MIS)."""
    h5py = importlib.import_module("h5py")
    root = clone / "data" / "ACDC"
    (root / "data" / "slices").mkdir(parents=True, exist_ok=True)
    for listed, folder, shape in (("train_slices", "slices", (256, 216)), ("val", ".", (8, 256, 216))):
        for name in (root / f"{listed}.list").read_text().split():
            with h5py.File(root / "data" / folder / f"{name}.h5", "w") as file:
                file["image"] = ROLL.random(shape, dtype=np.float32)
                file["label"] = ROLL.integers(0, 4, shape, dtype=np.uint8)


def driven_streets(clone: Path) -> None:
    """CamVid's pictures of 480x360 and their classes, by the clone's lists (Efficient-Segmentation-Networks)."""
    root = clone / "dataset" / "camvid"
    for part in ("trainval", "val"):
        for row in (root / f"camvid_{part}_list.txt").read_text().splitlines():
            picture, classes = row.split()
            image(root / picture, 480, 360)
            image(root / classes, 480, 360, 12)


def nuclei(clone: Path) -> None:
    """MoNuSeg's two folders with 24 and 6 pictures and masks, and a UNet of no weights to start from (UCTransNet)."""
    for part, count in (("Train", 24), ("Val", 6)):
        root = clone / "datasets" / "MoNuSeg" / f"{part}_Folder"
        for at in range(count):
            image(root / "img" / f"{at}.jpg", 512, 512)
            image(root / "labelcol" / f"{at}.png", 512, 512, 256)
    torch.save({"state_dict": {}}, clone / "nets" / "best_model-UNet.pth.tar")


def livers(clone: Path) -> None:
    """40 pictures of 512x512 and their masks (u_net_liver)."""
    for at in range(40):
        image(clone / "data" / "train" / f"{at:03}.png", 512, 512)
        image(clone / "data" / "train" / f"{at:03}_mask.png", 512, 512, 256)


def cars_in_folders(clone: Path) -> None:
    """320 pictures in two parts of four makes (ddpm)."""
    for part, count in (("train", 256), ("test", 64)):
        for at in range(count):
            folder = clone / "stanford_cars" / "car_data" / "car_data" / part / f"make{at % 4}"
            image(folder / f"{at}.jpg", 300, 200)
    (clone / "trained_models").mkdir(exist_ok=True)


def small_faces(clone: Path) -> None:
    """1,100 faces of CelebA, cut to 64x64 as its own code leaves them (disentangling-vae)."""
    for at in range(1100):
        image(clone / "data" / "celeba" / "img_align_celeba" / f"{at:06}.jpg", 64, 64)


def chairs_in_flight(clone: Path) -> None:
    """100 pairs of pictures of 512x384 with their flows (FlowNetPytorch)."""
    folder = clone / "made" / "flying_chairs"
    folder.mkdir(parents=True, exist_ok=True)
    for at in range(100):
        for which in (1, 2):
            image(folder / f"{at:05}_img{which}.ppm", 512, 384)
        flow = ROLL.normal(size=(384, 512, 2)).astype(np.float32)
        (folder / f"{at:05}_flow.flo").write_bytes(struct.pack("<fii", 202021.25, 512, 384) + flow.tobytes())


MAKERS: dict[str, Callable[[Path], None]] = {
    one.__name__: one
    for one in (boxes_for_yolov8, texts_in_scenes, slices_of_hearts, driven_streets, nuclei, livers,
                cars_in_folders, small_faces, chairs_in_flight, cifar)
}  # fmt: skip
