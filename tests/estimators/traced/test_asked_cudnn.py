"""Workspaces that cuDNN is asked for, by a process that stands in for PyTorch's CUDA build."""

import io
import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from vramtui.estimators.torch_facts.cards import CardLimits
from vramtui.estimators.torch_facts.measured_convolutions import ConvolutionCall

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
from vramtui.estimators.traced.device import asked_cudnn  # noqa: E402 - it imports torch
from vramtui.estimators.traced.process import cudnn_answers  # noqa: E402 - it does, too

CARD = SimpleNamespace(name="L4", limits=CardLimits((8, 9), 58, 1536))
CALL = ConvolutionCall(
    shapes=((32, 640, 300), (96, 640, 11), (32, 96, 270)),
    dtype="float32",
    itemsize=4,
    stride=(1,),
    padding=(0,),
    dilation=(3,),
)
# The first answer is what was asked and the card that is there, in a file.
ANSWERS = """
import json, os, sys
print("ready", flush=True)
for line in sys.stdin:
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(json.dumps([json.loads(line), os.environ["VRAMTUI_CARD"]]) + "\\n")
    print(json.dumps({says}), flush=True)
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a module that answers in cuDNN's place."""
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(asked_cudnn, "ANSWERS", "answers")
    return tmp_path / "answers.py"


def test_a_workspace_is_asked_for_once_under_each_setting(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.write_text(ANSWERS.replace("{says}", "[512, 1024]"), encoding="utf-8")
    asked = asked_cudnn.AskedCudnn(CARD, has_cudnn=True)
    for deterministic in (False, True):
        monkeypatch.setattr(torch.backends.cudnn, "deterministic", deterministic)
        for _ in range(2):
            assert asked.answer(CALL, "weight", output_padding=[0]) == (512, 1024)
    asked.close()
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text(encoding="utf-8").splitlines()]
    assert [one["deterministic"] for one, _ in seen] == [False, True]
    assert {card for _, card in seen} == {f"NVIDIA L4;89;{1 << 40};58;0;1;0;0"}
    assert seen[0][0]["shapes"] == [list(one) for one in CALL.shapes]
    assert (seen[0][0]["direction"], seen[0][0]["dilation"]) == ("weight", [3])


@pytest.mark.parametrize("code", ["", "raise SystemExit(1)", "print('ready')", ANSWERS.replace("{says}", "None")])
def test_a_workspace_that_nobody_answers_for_is_unknown(stand_in: Path, code: str) -> None:
    stand_in.write_text(code, encoding="utf-8")
    asked = asked_cudnn.AskedCudnn(CARD, has_cudnn=True)
    assert [asked.answer(CALL, at, output_padding=[0]) for at in ("forward", "input")] == [None, None]
    asked.close()


def test_a_build_without_cudnn_and_another_vendors_card_are_asked_nothing(stand_in: Path) -> None:
    stand_in.write_text(ANSWERS.replace("{says}", "[512, 1024]"), encoding="utf-8")
    amd = SimpleNamespace(name="AMD MI300X", limits=CARD.limits)
    assert asked_cudnn.AskedCudnn(amd, has_cudnn=True).answer(CALL, "forward", output_padding=[0]) is None
    without = asked_cudnn.AskedCudnn(CARD, has_cudnn=False)
    assert without.answer(CALL, "forward", output_padding=[0]) is None


def test_the_first_kernel_alone_is_timed_and_each_question_has_a_thread_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PyTorch keeps for each thread which convolutions it has tried; which is fastest is chance without a card."""
    of_thread = threading.local()

    def answer(asked: dict[str, int]) -> list[int]:
        if asked["bytes"] < 0:
            raise torch.OutOfMemoryError
        before = getattr(of_thread, "tried", 0)
        of_thread.tried = asked["bytes"]
        return [before, asked["bytes"], torch.backends.cudnn.benchmark_limit]

    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark_limit", 10, raising=False)
    monkeypatch.setattr(cudnn_answers, "answer", answer)
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"bytes": 5}\n{"bytes": -1}\n{"bytes": 7}\n'))
    cudnn_answers.main()
    assert capsys.readouterr().out.splitlines() == ["ready", "[0, 5, 1]", "null", "[0, 7, 1]"]
