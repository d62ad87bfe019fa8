"""Runs that are shared tell nothing of whose they are, and come in again as what they were."""

from pathlib import Path

import msgspec
import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.runs.run import Run
from vramtui.records.run_history import RunHistory
from vramtui.records.shared_runs import OWN, encoded, read_shared, shareable

SECRETS = ("anna", "gpu07", "lab-secret", "train_secret", "GPU-abc", "54321")
RUN = Run(
    key="gpu07/GPU-abc/54321/1795176123.4",
    source="run",
    host="gpu07",
    gpu_uuid="GPU-abc",
    gpu_name="NVIDIA A100",
    pid=54321,
    command="python /data/anna/train_secret.py",
    started_at=1795176123.4,
    ended_at=1795176223.4,
    ending="exited",
    preset="lab-secret",
    model_kind="huggingface",
    workload={
        "model": {"kind": "huggingface", "config": '{"model_type":"llama","_name_or_path":"/data/anna/x"}'},
        "run": {"kind": "train", "batch_size": 2},
    },
    method="analytic",
    predicted=Ledger(process=100),
    observed=Ledger(process=110),
    times=(0.0, 50.0),
    values=(10, 110),
    versions={"torch": "2.13.0", "conda env": "anna"},
)


def test_nothing_says_whose_it_is() -> None:
    text = encoded(shareable([RUN], ["gpt2-124m"]))
    assert [secret for secret in SECRETS if secret in text] == []
    (shared,) = shareable([RUN], [])
    assert (shared.preset, shared.error, shared.started_at % 86400) == (OWN, RUN.error, 0)
    assert shared.ended_at == shared.started_at + 100
    assert (shared.times, shared.values, shared.versions) == (RUN.times, RUN.values, {"torch": "2.13.0"})


def test_only_scored_runs_of_models_that_are_told() -> None:
    own_code = msgspec.structs.replace(RUN, workload={"model": {"kind": "torch", "file": "secret.py"}})
    others = [
        msgspec.structs.replace(RUN, ending="failed"),
        msgspec.structs.replace(RUN, observed=Ledger()),
        own_code,
    ]
    assert shareable(others, []) == ()


def test_what_was_shared_comes_in_once(tmp_path: Path) -> None:
    path = tmp_path / "shared.json"
    path.write_text(encoded(shareable([RUN], [])))
    history = RunHistory(tmp_path / "runs.sqlite")
    history.keep(RUN)
    for _ in range(2):
        for run in read_shared(path):
            history.keep(run)
    kept = [entry.run for entry in history.runs()]
    assert len(kept) == 2
    assert {run.error for run in kept} == {RUN.error}


def test_runs_that_are_the_same_without_their_names_stay_several(tmp_path: Path) -> None:
    again = msgspec.structs.replace(RUN, key="gpu07/GPU-abc/54322/1795176123.4", pid=54322)
    path = tmp_path / "shared.json"
    path.write_text(encoded(shareable([RUN, again], [])))
    history = RunHistory(tmp_path / "runs.sqlite")
    for _ in range(2):
        for run in read_shared(path):
            history.keep(run)
    assert len(history.runs()) == 2


@pytest.mark.parametrize("text", [b"", b"[]", b'{"runs":[{"key":1}]}', b'{"runs":[{"workload":{"h\xc5g":1}}]}'])
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "shared.json"
    path.write_bytes(text)
    with pytest.raises(UserError, match="holds no shared runs"):
        read_shared(path)


def test_only_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shared.json"
    path.write_text(encoded(shareable([RUN], ())).replace('"schema": 1,', '"schema": 1, "cluster": "a",'))
    assert len(read_shared(path)) == 1
    path.write_text('{"schema": 2, "run_list": []}')
    with pytest.raises(
        UserError, match=r"shared.json: made by a newer version of vramtui \(format 2, this one reads 1"
    ):
        read_shared(path)
