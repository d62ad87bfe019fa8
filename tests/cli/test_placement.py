from pathlib import Path

import msgspec
import pytest

from tests.commands import invoke
from tests.examples import Never
from vramtui.cli.pick import no_room
from vramtui.cli.run import placement
from vramtui.cli.run.command import placed_by
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.observation.readings import Gpu, Host, Memory, Sample
from vramtui.presets import PresetLibrary

GIB = 1 << 30


def test_the_probes_of_a_job_and_of_its_dry_run_are_heard_apart() -> None:
    job, dry_run = placement.open_listener("0a" * 8), placement.open_listener("0b" * 8)
    assert job.path != dry_run.path
    dry_run.close()
    assert job.path.exists()
    job.close()


def host(*free: int | None, total: int = 80 * GIB) -> Sample:
    gpus = tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            name="NVIDIA H100",
            compute_capability=(9, 0),
            memory=Memory(total=total, free=one, used=None if one is None else total - one, reserved=0),
        )
        for index, one in enumerate(free)
    )
    return Sample(source="test", host=Host(name="here"), taken_at=0.0, gpus=gpus)


class Source(Never):
    def __init__(self, *samples: Sample | SourceFailed) -> None:
        self.samples = list(samples)

    def read(self) -> Sample:
        sample = self.samples.pop(0) if len(self.samples) > 1 else self.samples[0]
        if isinstance(sample, SourceFailed):
            raise sample
        return sample


@pytest.fixture(autouse=True)
def all_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)


def test_the_one_with_most_room_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, need = host(10 * GIB, 60 * GIB, None, 40 * GIB), placement.Need(38 * GIB)
    assert [gpu.index for gpu, _ in placement.candidates(sample, need)] == [1, 3]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    assert [gpu.index for gpu, _ in placement.candidates(sample, need)] == [3]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    assert [gpu.index for gpu, _ in placement.candidates(sample, need)] == [1]


def test_cards_of_amd_are_named_as_rocm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm's GPU isolation: ROCr's variable takes indices or uuids, and HIP's counts what that leaves."""
    uuids = {0: "AMD-0xabc", 1: "AMD-0000:83:00.0", 2: "AMD-0xdef"}
    cards = tuple(
        msgspec.structs.replace(gpu, vendor="AMD", uuid=uuids[gpu.index])
        for gpu in host(60 * GIB, 70 * GIB, 50 * GIB).gpus
    )
    sample = msgspec.structs.replace(host(), gpus=cards)
    need = placement.Need(38 * GIB)
    assert [gpu.index for gpu, _ in placement.candidates(sample, need)] == [1, 0, 2]
    assert placement.placing(cards, cards) == {
        "ROCR_VISIBLE_DEVICES": "GPU-abc,1,GPU-def",
        "HIP_VISIBLE_DEVICES": "0,1,2",
    }
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "GPU-ABC,2")
    assert [gpu.index for gpu, _ in placement.candidates(sample, need)] == [0, 2]
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    assert [gpu.index for gpu, _ in placement.candidates(sample, need)] == [2]
    # Beside a card of NVIDIA's, which comes first, they are counted by themselves, and a job is for the one vendor.
    further = (msgspec.structs.replace(gpu, index=gpu.index + 1) for gpu in cards)
    beside = msgspec.structs.replace(sample, gpus=(*host(40 * GIB).gpus, *further))
    assert [gpu.uuid for gpu, _ in placement.candidates(beside, need)] == ["GPU-0"]
    assert [placement.own_index(gpu, beside.gpus) for gpu in beside.gpus] == [0, 0, 1, 2]
    assert placement.runtime_uuid(beside.gpus[2], beside.gpus) == "1"


def test_a_preset_needs_what_it_is_estimated_to(tmp_path: Path) -> None:
    need = placement.need_of(None, PresetLibrary().get("gpt2-124m"), None)
    assert [gpu.index for gpu, _ in placement.candidates(host(10 * GIB, 60 * GIB), need)] == [1]
    assert placement.need_of(None, PresetLibrary().get("llama-3.1-70b-fsdp"), None).count == 64
    with pytest.raises(UserError, match="--needs 38GiB, or --preset NAME"):
        placement.need_of(None, None, None)
    del tmp_path


def test_two_that_wait_do_not_take_the_same_and_it_says_what_it_waits_for(tmp_path: Path) -> None:
    sample, first, second = host(60 * GIB, 50 * GIB), placement.Claims(tmp_path), placement.Claims(tmp_path)
    assert [gpu.index for gpu, _ in placement.claimed(sample, placement.Need(38 * GIB), first)] == [0]
    assert [gpu.index for gpu, _ in placement.claimed(sample, placement.Need(38 * GIB), second)] == [1]
    assert placement.claimed(sample, placement.Need(38 * GIB), placement.Claims(tmp_path)) == []
    # A job that needs both takes neither while one of them is another's.
    second.release()
    assert placement.claimed(sample, placement.Need(38 * GIB, count=2), placement.Claims(tmp_path)) == []
    first.release()
    both = [gpu for gpu, _ in placement.claimed(sample, placement.Need(38 * GIB, count=2), placement.Claims(tmp_path))]
    assert placement.placing(both, sample.gpus) == {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1"}
    said: list[str] = []
    source = Source(host(10 * GIB), SourceFailed("gone"), host(10 * GIB), host(60 * GIB))
    others = placement.Claims(tmp_path / "others")
    _, (found,) = placement.wait_for_room(
        source, placement.Need(38 * GIB), others, say=said.append, sleep=lambda _: None
    )
    assert found[0].index == 0
    assert said == ["waiting for 1 GPU; GPU 0 needs 38.0 GiB, has 10.0 GiB: 28.0 GiB short"]
    with pytest.raises(UserError, match=r"needs 90\.0 GiB on each of 1 GPU, and 0 of the 2 here"):
        placement.wait_for_room(
            Source(host(80 * GIB, 80 * GIB)), placement.Need(90 * GIB), placement.Claims(tmp_path), say=print
        )
    with pytest.raises(UserError, match="on each of 3 GPUs, and 2 of the 2 here"):
        placement.wait_for_room(
            Source(host(80 * GIB, 80 * GIB)), placement.Need(9 * GIB, count=3), placement.Claims(tmp_path), say=print
        )
    lost = msgspec.structs.replace(host(80 * GIB).gpus[0], state="lost", reason="fell off the bus")
    assert placement.candidates(msgspec.structs.replace(host(), gpus=(lost,)), placement.Need(GIB)) == []


def test_without_room_the_nearest_gpu_and_the_command_that_waits_are_named() -> None:
    said = no_room(host(10 * GIB, 60 * GIB, None).gpus, 0, 1)
    assert said.startswith("0 of 3 GPUs have room, 1 needed; the most is free on GPU 1: 60.0 GiB")
    assert "`vramtui run --when-fits -- COMMAND`" in said


def test_a_command_that_names_its_model_needs_neither_a_size_nor_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    command = "python train.py --model_name_or_path Qwen/Qwen2.5-1.5B --per_device_train_batch_size 4 --bf16"
    found = placed_by(command.split())
    assert found is not None
    assert placement.need_of(None, found, None).fit(host(80 * GIB).gpus[0]).needs > 20 * GIB
    said = capsys.readouterr().err
    assert "derived from Qwen/Qwen2.5-1.5B" in said
    assert "--per_device_train_batch_size 4" in said
    assert "sequence 2048, no LoRA, checkpointing none assumed" in " ".join(said.split())
    assert placed_by(["python", "train.py"]) is None


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("kept")
    claims = placement.Claims(tmp_path / "claims")
    claims.folder.mkdir()
    (claims.folder / "GPU-0").symlink_to(mine)
    with pytest.raises(UserError, match="cannot be used to claim a GPU"):
        claims.take("GPU-0")
    assert mine.read_text() == "kept"


@pytest.mark.parametrize(
    ("words", "index"),
    [(("2",), "1,2"), (("24GB",), "1"), (("--count", "2"), "1,2"), (("--memory", "110GB", "-n", "2"), "1,2")],
)
def test_pick_takes_what_people_type_and_says_who_is_there(words: tuple[str, ...], index: str) -> None:
    done = invoke("pick", "--demo", *words)
    assert done.stdout == f"{index}\n"
    assert done.stderr.splitlines()[0] == (
        "vramtui: also on GPU 1: pid 5120 (bo), 20.9 GiB: serve.py --model Qwen/Qwen2.5-7B-Instruct --max-batch 8"
    )
    assert len(done.stderr.splitlines()) == (3 if "," in index else 1)
