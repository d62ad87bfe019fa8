from pathlib import Path

import pytest

from vramtui.dryrun.largest_batch import MOST_TRACES, BatchFlag, batch_flag, largest_batch, sentence_of

PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", default=32, type=int)
parser.add_argument("--lr", default=1)
"""


def script(folder: Path, text: str = "") -> str:
    path = folder / "train.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(("arguments", "value", "with_four"), [
    (["--lr", "1", "--batch-size", "16", "x"], 16, ("--lr", "1", "--batch-size", "4", "x")),
    (["--batch_size=12", "x"], 12, ("--batch_size=4", "x")),
    (["--per_device_train_batch_size", "8"], 8, ("--per_device_train_batch_size", "4")),
    (["-b", "64"], 64, ("-b", "4")),
])  # fmt: skip
def test_the_flag_that_was_given(arguments: list[str], value: int, with_four: tuple[str, ...], tmp_path: Path) -> None:
    found = batch_flag(["python", script(tmp_path, PARSER), *arguments])
    assert (found.value, found.arguments(4)[2:]) == (value, with_four)


@pytest.mark.parametrize("arguments", [["--batch-size"], ["--batch-size", "many"], ["batch", "4"], ["--lr", "4"]])
def test_no_flag(arguments: list[str], tmp_path: Path) -> None:
    assert batch_flag(["python", script(tmp_path), *arguments]) is None
    assert batch_flag(["python", str(tmp_path / "none.py"), *arguments]) is None
    assert batch_flag(["python", script(tmp_path, "def ("), *arguments]) is None


def test_the_flag_that_the_script_has_by_default(tmp_path: Path) -> None:
    found = batch_flag(["python", script(tmp_path, PARSER), "--lr", "2"])
    assert (found.value, found.arguments(4)[2:]) == (32, ("--lr", "2", "--batch-size", "4"))


def search(value: int, room: int, *, fixed: int, each: int) -> tuple[str, int]:
    tried = []

    def needs(arguments: tuple[str, ...]) -> int | None:
        batch = int(arguments[-1])
        assert batch not in tried
        tried.append(batch)
        size = fixed + each * batch
        return size if size <= room else None

    flag = BatchFlag(flag="--batch-size", value=value, others=(), place=0, joined=False)
    return sentence_of(largest_batch(flag, room, needs)), len(tried)


@pytest.mark.parametrize("value", [2, 3, 16, 64, 100])
@pytest.mark.parametrize("fixed", [0, 100, 900])
@pytest.mark.parametrize("each", [10, 33, 70, 99])
def test_memory_that_grows_with_the_batch_takes_few_traces(value: int, fixed: int, each: int) -> None:
    largest = (1000 - fixed) // each
    if largest >= value:
        return
    sentence, traces = search(value, 1000, fixed=fixed, each=each)
    assert traces <= MOST_TRACES
    assert sentence.startswith(f"largest batch that fits: {largest} (--batch-size {largest}); {largest + 1} does not")


def test_not_even_one_fits_or_the_search_is_cut_off() -> None:
    assert search(16, 1000, fixed=1000, each=1) == ("not even --batch-size 1 fits", 4)
    assert search(1, 1000, fixed=1000, each=1) == ("not even --batch-size 1 fits", 0)
    sentence, traces = search(1 << 20, 1 << 30, fixed=(1 << 30) - 1, each=1)
    assert traces == MOST_TRACES
    assert sentence == "--batch-size 4096 does not fit either"
