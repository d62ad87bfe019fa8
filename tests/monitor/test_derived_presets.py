import threading

import msgspec
import pytest

from tests.app import scenes
from tests.app.fakes import PRESETS
from tests.installed.terminal import until
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.derived_presets import DerivedPresets


def sample_with(*pids: int) -> Sample:
    usual = scenes.usual()
    gpu = usual.gpus[0]
    rows = tuple(msgspec.structs.replace(gpu.processes[0], pid=pid, command=f"job {pid}") for pid in pids)
    return msgspec.structs.replace(usual, gpus=(msgspec.structs.replace(gpu, processes=rows),))


def test_there_is_news_where_a_preset_was_found_and_only_then() -> None:
    looked: list[int] = []

    def derive(pid: int, command: str) -> PresetFile | None:
        assert command == f"job {pid}"
        looked.append(pid)
        return PRESETS[0] if pid == 3 else None

    derived = DerivedPresets(derive)
    assert derived.with_derived(sample_with(1, 2), {}, {}) == {}
    until(lambda: looked == [1, 2])
    assert derived.with_derived(sample_with(1, 2), {}, {}) == {}
    assert not derived.has_news, "two processes without a model are nothing that would be said"
    derived.with_derived(sample_with(1, 2, 3), {}, {})
    until(lambda: derived.has_news)
    assert {key.pid for key in derived.with_derived(sample_with(1, 2, 3), {}, {})} == {3}
    assert not derived.has_news
    assert looked == [1, 2, 3], "each is looked into once"


def test_ranks_that_name_no_model_are_looked_into_only_where_their_folder_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vramtui.monitor.derived_presets.os.access", lambda path, _: path == "/proc/3/cwd/config.json")
    for commands, asked in (
        (("python train.py --rank=0 -u --lr 1e-4", "python train.py --rank=1", "python eval.py 7"), (2,)),
        (("python train.py --model=gpt2", "python train.py --rank=1", "vllm serve.py", "python -m train"), (0, 2, 3)),
    ):
        looked: dict[str, str] = {}
        derived = DerivedPresets(lambda _, command: looked.setdefault(command, ""), wait=True)  # noqa: B023 - now
        rows = (scenes.process(at, 1, command) for at, command in enumerate(commands, 1))
        derived.with_derived(scenes.sample(scenes.gpu(0, *rows)), {}, {})
        assert ([*looked], derived.reasons) == ([commands[at] for at in asked], {})


def test_what_has_gone_is_not_looked_into() -> None:
    looked: list[int] = []
    may_go_on = threading.Event()

    def derive(pid: int, command: str) -> PresetFile | None:
        del command
        looked.append(pid)
        assert may_go_on.wait(10)
        return None

    derived = DerivedPresets(derive)
    derived.with_derived(sample_with(*range(1, 500)), {}, {})
    until(lambda: looked == [1])
    derived.with_derived(sample_with(1, 499), {}, {})
    may_go_on.set()
    until(lambda: len(looked) == 2)
    assert looked == [1, 499]
