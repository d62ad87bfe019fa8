"""Voices and sounds made up for the scripts of rounds.toml: random, in the formats that they read."""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.scripts.rounds_data import ROLL

CLASSES = 527  # of AudioSet


def sounds_of_audioset(clone: Path) -> None:
    """128 and twice 32 sounds of ten seconds with some of 527 kinds, of which each occurs (audioset_tagging_cnn)."""
    h5py = importlib.import_module("h5py")
    root = clone / "made" / "workspace" / "hdf5s"
    (root / "indexes").mkdir(parents=True, exist_ok=True)
    for part, count in (("full_train", 128), ("balanced_train", 32), ("eval", 32)):
        kinds = ROLL.random((count, CLASSES)) < 0.1
        kinds[np.arange(CLASSES) % count, np.arange(CLASSES)] = True
        names = [f"Y{part}{at}.wav".encode() for at in range(count)]
        waves = root / f"{part}.h5"
        with h5py.File(waves, "w") as file:
            file["audio_name"], file["target"] = names, kinds
            file["waveform"] = ROLL.integers(-9000, 9000, (count, 320_000), dtype=np.int16)
        with h5py.File(root / "indexes" / f"{part}.h5", "w") as file:
            file["audio_name"], file["target"] = names, kinds
            file["hdf5_path"] = [str(waves).encode()] * count
            file["index_in_hdf5"] = np.arange(count, dtype=np.int32)


def voices_of_vctk(clone: Path) -> None:
    """The 3,028 recordings of its lists, of which forty differ, and random weights of its two nets (StarGANv2-VC)."""
    soundfile = importlib.import_module("soundfile")
    made = [clone / "made" / f"{at}.wav" for at in range(40)]
    made[0].parent.mkdir(exist_ok=True)
    for file in made:
        soundfile.write(file, ROLL.uniform(-0.5, 0.5, 72_000).astype(np.float32), 24_000)
    for part in ("train", "val"):
        for at, row in enumerate((clone / "Data" / f"{part}_list.txt").read_text().splitlines()):
            file = clone / row.split("|")[0]
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                os.link(made[at % 40], file)
    sys.path.insert(0, str(clone))
    sizes = {"input_dim": 80, "hidden_dim": 256, "n_token": 80, "token_embedding_dim": 256}
    net: Any = importlib.import_module("Utils.ASR.models").ASRCNN(**sizes)
    torch.save({"model": net.state_dict()}, clone / "Utils" / "ASR" / "epoch_00100.pth")
    net = importlib.import_module("Utils.JDC.model").JDCNet(num_class=1, seq_len=192)
    torch.save({"net": net.state_dict()}, clone / "Utils" / "JDC" / "bst.t7")


def frames_of_speech(clone: Path) -> None:
    """256 sayings of two seconds with their frames, as its preprocess.py leaves them (UniversalVocoding)."""
    root = clone / "datasets" / "LJSpeech-1.1"
    (root / "train").mkdir(parents=True, exist_ok=True)
    for at in range(256):
        np.save(root / "train" / f"{at}.wav.npy", ROLL.integers(0, 1024, 32_200))
        np.save(root / "train" / f"{at}.mel.npy", ROLL.random((80, 161), dtype=np.float32))
    (root / "train.json").write_text(json.dumps([["", f"train/{at}"] for at in range(256)]))


def read_passages(clone: Path) -> None:
    """64 sayings of two to four seconds with their texts, in LJ Speech's folders (Tacotron2-PyTorch)."""
    wavfile = importlib.import_module("scipy.io.wavfile")
    root = clone / "made" / "LJSpeech-1.1"
    (root / "wavs").mkdir(parents=True, exist_ok=True)
    texts = [" ".join(["proof", "of", "spoken", "words"] * (1 + at % 4)) for at in range(64)]
    for at in range(64):
        length = int(ROLL.integers(44_000, 88_000))
        wavfile.write(root / "wavs" / f"{at}.wav", 22_050, ROLL.integers(-9000, 9000, length, dtype=np.int16))
    (root / "metadata.csv").write_text("".join(f"{at}|{text}|{text}\n" for at, text in enumerate(texts)))


MAKERS: dict[str, Callable[[Path], None]] = {
    one.__name__: one for one in (sounds_of_audioset, voices_of_vctk, frames_of_speech, read_passages)
}
