"""Graphs, clicks and series made up for the scripts of rounds.toml: random, in the formats that they read."""

import datetime as dt
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.scripts.rounds_data import ROLL, days, ett_minutes, sensors_of_roads

TEMPERATURES = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]


def words_of_wordnet(clone: Path) -> None:
    """20,000 triples of 5,000 of WN18RR's words in its eleven relations, which its own code numbers (KGEmb)."""
    root = clone / "data" / "WN18RR"
    root.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 20_000), ("valid", 500), ("test", 500)):
        words, by = ROLL.integers(0, 5000, (count, 2)), ROLL.integers(0, 11, count)
        if part == "train":
            words[:5000, 0] = np.arange(5000)
        rows = (f"{one}\t_r{relation}\t{other}\n" for (one, other), relation in zip(words, by, strict=True))
        (root / part).write_text("".join(rows))
    known = {**os.environ, "DATA_PATH": str(clone / "data")}
    subprocess.run([sys.executable, "datasets/process.py"], check=True, cwd=clone, env=known)
    (clone / "logs").mkdir(exist_ok=True)


def news_of_mind(clone: Path) -> None:
    """2,000 news of twenty words and 2,000 choices, as its data_preprocess.py leaves them (news-recommendation)."""
    root = clone / "data" / "train"
    root.mkdir(parents=True, exist_ok=True)
    titles = ROLL.integers(1, 70_975, (2000, 20)).tolist()
    news = (f"N{at}\t1\t2\t{title}\t{title}\t{title}\t{title}\n" for at, title in enumerate(titles))
    heads = ["id", "category", "subcategory", "title", "abstract", "title_entities", "abstract_entities"]
    (root / "news_parsed.tsv").write_text("\t".join(heads) + "\n" + "".join(news))
    rows = []
    for user in range(2000):
        clicked, offered = (" ".join(f"N{at}" for at in ROLL.integers(0, 2000, count)) for count in (30, 3))
        rows.append(f"{user}\t{clicked}\t{offered}\t1 0 0\n")
    (root / "behaviors_parsed.tsv").write_text("user\tclicked_news\tcandidate_news\tclicked\n" + "".join(rows))
    np.save(root / "pretrained_word_embedding.npy", ROLL.normal(size=(70_976, 300)).astype(np.float32))


def temperatures(clone: Path) -> None:
    """ETTh: seven numbers an hour, 17,420 times (Diffusion-TS)."""
    days(clone / "Data" / "datasets" / "ETTh.csv", TEMPERATURES, 17_420, dt.timedelta(hours=1))


def sensors_of_pems(clone: Path) -> None:
    """307 sensors' three figures 3,000 times, cut as its generate_training_data.py cuts them (STID)."""
    root = clone / "datasets" / "PEMS04"
    root.mkdir(parents=True, exist_ok=True)
    clock = np.arange(3000)
    hours, weekdays = (np.tile(one[:, None], 307) for one in (clock % 288 / 288, clock // 288 % 7 / 7))
    parts = [ROLL.normal(size=(3000, 307)), hours, weekdays]
    (root / "data_in12_out12.pkl").write_bytes(pickle.dumps({"processed_data": np.stack(parts, axis=-1)}))
    cuts = [(at, at + 12, at + 24) for at in range(2976)]
    index = {"train": cuts[:2000], "valid": cuts[2000:2500], "test": cuts[2500:]}
    (root / "index_in12_out12.pkl").write_bytes(pickle.dumps(index))
    scaler = {"func": "re_standard_transform", "args": {"mean": 200.0, "std": 150.0}}
    (root / "scaler_in12_out12.pkl").write_bytes(pickle.dumps(scaler))


MAKERS: dict[str, Callable[[Path], None]] = {
    one.__name__: one
    for one in (words_of_wordnet, news_of_mind, temperatures, sensors_of_pems,
                ett_minutes, sensors_of_roads)
}  # fmt: skip
