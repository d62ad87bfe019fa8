"""Texts, proteins, molecules, bodies and points made up for the scripts of rounds.toml: random, as they are read."""

import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.scripts.rounds_data import ROLL, bytes_of_memory


def start(clone: Path, module: str, call: str = "") -> None:
    """made/start.py, which runs `module` as its README's command does: by -m, or by its function `call`."""
    (clone / "made").mkdir(exist_ok=True)
    run = f"import runpy; runpy.run_module({module!r}, run_name='__main__')"
    line = f"import {module}; {module}.{call}()" if call else run
    (clone / "made" / "start.py").write_text(line + "\n")


def pairs_of_proteins(clone: Path) -> None:
    """120 and 40 pairs of 60 proteins, embedded in 6,165 numbers a place (D-SCRIPT)."""
    start(clone, "dscript")
    h5py = importlib.import_module("h5py")
    with h5py.File(clone / "made" / "embeddings.h5", "w") as file:
        for at in range(60):
            file[f"p{at}"] = ROLL.normal(size=(1, int(ROLL.integers(50, 150)), 6165)).astype(np.float32)
    for part, count in (("train", 120), ("test", 40)):
        rows = (f"p{one}\tp{other}\t{at % 2}\n" for at, (one, other) in enumerate(ROLL.integers(0, 60, (count, 2))))
        (clone / "made" / f"{part}.tsv").write_text("".join(rows))


def spelled_molecules(clone: Path) -> None:
    """2,000 and 500 molecules as 120 of 35 letters (molencoder)."""
    start(clone, "molencoder.cli.main", "main")
    h5py = importlib.import_module("h5py")
    with h5py.File(clone / "made" / "chembl22.h5", "w") as file:
        for part, count in (("train", 2000), ("test", 500)):
            file[f"data_{part}"] = np.eye(35, dtype=np.float32)[ROLL.integers(0, 35, (count, 120))]
        file["charset"] = [f"{at:c}".encode() for at in range(40, 75)]


def tokens_of_pile(clone: Path) -> None:
    """500,000 and 100,000 of GPT-3's tokens (train-llm-from-scratch)."""
    h5py = importlib.import_module("h5py")
    for part, count in (("train/pile_train", 500_000), ("val/pile_dev", 100_000)):
        file = clone / "data" / f"{part}.h5"
        file.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(file, "w") as opened:
            opened["tokens"] = ROLL.integers(0, 50_257, count).astype(np.int32)


def bytes_for_palm(clone: Path) -> None:
    """95 million random bytes where its own script and DeepSpeed's read them (PaLM-pytorch)."""
    (clone / "data").mkdir(exist_ok=True)
    bytes_of_memory(clone)
    (clone / "examples" / "enwik8_deepspeed" / "data").mkdir(parents=True, exist_ok=True)
    os.link(clone / "data" / "enwik8.gz", clone / "examples" / "enwik8_deepspeed" / "data" / "enwik8.gz")


def marked_sentences(clone: Path) -> None:
    """3,000 sentences of 10 to 40 letters with their marks (bi-lstm-crf)."""
    start(clone, "bi_lstm_crf")
    root = clone / "made" / "corpus"
    root.mkdir(exist_ok=True)
    letters = [chr(0x4E00 + at) for at in range(2000)]
    marks = ["B", "I", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    rows = []
    for _ in range(3000):
        count = int(ROLL.integers(10, 40))
        rows.append(f"{''.join(ROLL.choice(letters, count))}\t{json.dumps(ROLL.choice(marks, count).tolist())}\n")
    (root / "dataset.txt").write_text("".join(rows), encoding="utf-8")
    (root / "vocab.json").write_text(json.dumps(letters))
    (root / "tags.json").write_text(json.dumps(marks))


def bodies_of_h36m(clone: Path) -> None:
    """Human3.6M's seven people in two actions, 1,200 frames from four cameras each (VideoPose3D)."""
    folder = clone / "data"
    folder.mkdir(exist_ok=True)
    people = ("S1", "S5", "S6", "S7", "S8", "S9", "S11")
    spaces: dict[str, dict[str, np.ndarray]] = {}
    seen: dict[str, dict[str, list[np.ndarray]]] = {}
    for one in people:
        spaces[one] = {what: ROLL.normal(size=(1200, 32, 3)).astype(np.float32) for what in ("Walking", "Eating")}
        seen[one] = {
            what: [ROLL.uniform(0, 1000, (1200, 17, 2)).astype(np.float32) for _ in range(4)] for what in spaces[one]
        }
    symmetry = [[4, 5, 6, 11, 12, 13], [1, 2, 3, 14, 15, 16]]
    sides = {"keypoints_symmetry": symmetry, "num_joints": 17, "layout_name": "h36m"}
    np.savez_compressed(folder / "data_3d_h36m.npz", positions_3d=np.array(spaces, dtype=object))
    places = np.array(seen, dtype=object)
    np.savez_compressed(folder / "data_2d_h36m_cpn_ft_h36m_dbb.npz", positions_2d=places, metadata=np.array(sides))


def points_of_shapenet(clone: Path) -> None:
    """ShapeNet's sixteen kinds with six things of 2,600 points each (pointnet.pytorch)."""
    root = clone / "made" / "shapenet"
    kinds = [row.split()[0] for row in (clone / "misc" / "num_seg_classes.txt").read_text().splitlines()]
    (root / "train_test_split").mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{kind}\t{at:08}\n" for at, kind in enumerate(kinds))
    (root / "synsetoffset2category.txt").write_text(rows)
    things: dict[str, list[str]] = {"train": [], "test": []}
    for place in range(len(kinds)):
        for folder in ("points", "points_label"):
            (root / f"{place:08}" / folder).mkdir(parents=True, exist_ok=True)
        for at in range(6):
            np.savetxt(root / f"{place:08}" / "points" / f"{at}.pts", ROLL.normal(size=(2600, 3)), fmt="%.5f")
            np.savetxt(root / f"{place:08}" / "points_label" / f"{at}.seg", ROLL.integers(1, 3, 2600), fmt="%d")
            things["train" if at < 4 else "test"].append(f"shape_data/{place:08}/{at}")
    for part, names in things.items():
        (root / "train_test_split" / f"shuffled_{part}_file_list.json").write_text(json.dumps(names))


def points_of_modelnet(clone: Path) -> None:
    """256 and 64 things of ModelNet's forty kinds, 2,048 points each (dgcnn)."""
    h5py = importlib.import_module("h5py")
    root = clone / "pytorch" / "data" / "modelnet40_ply_hdf5_2048"
    root.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 256), ("test", 64)):
        with h5py.File(root / f"ply_data_{part}0.h5", "w") as file:
            file["data"] = ROLL.normal(size=(count, 2048, 3)).astype(np.float32)
            file["label"] = ROLL.integers(0, 40, (count, 1)).astype(np.uint8)


MAKERS: dict[str, Callable[[Path], None]] = {
    one.__name__: one
    for one in (pairs_of_proteins, spelled_molecules, tokens_of_pile,
                bytes_for_palm, bytes_of_memory, marked_sentences, bodies_of_h36m,
                points_of_shapenet, points_of_modelnet)
}  # fmt: skip
