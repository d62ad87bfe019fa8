"""Every way in which code names the card, on a PyTorch without CUDA as on one with it."""

from pathlib import Path

import pytest

from tests.estimators.traced.test_scripts import traced

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]


@pytest.mark.parametrize("device", ['"cuda"', '"cuda:0"', "0", 'torch.device("cuda")', 'torch.device("cuda", 0)'])
def test_data_goes_to_the_card_by_every_name_of_it(tmp_path: Path, device: str) -> None:
    traced(
        tmp_path,
        f"""
        import numpy as np
        import torch
        array = np.zeros((1, 4), dtype=np.float32)
        for make in (torch.as_tensor, torch.tensor, torch.asarray):
            for value in (array, torch.from_numpy(array), torch.zeros(3, device="cuda"), [1, 2.0], 3):
                assert make(value, device={device}).device == torch.device("cuda", 0)
        assert torch.from_numpy(array).to({device}).is_cuda
        """,
    )


@pytest.mark.parametrize("make", ["as_tensor", "tensor", "asarray"])
def test_data_goes_to_the_default_device(tmp_path: Path, make: str) -> None:
    traced(
        tmp_path,
        f"""
        import numpy as np
        import torch
        with torch.device("cuda"):
            assert torch.{make}(np.zeros((1, 4))).is_cuda
        torch.set_default_device("cuda")
        assert torch.{make}(np.zeros((1, 4))).is_cuda
        """,
    )


def test_data_parallel_runs_on_the_one_card(tmp_path: Path) -> None:
    net = "torch.nn.Linear(1024, 1024)"
    peaks = [
        traced(
            tmp_path,
            f"""
            import torch
            net = {net if plain else f"torch.nn.DataParallel({net})"}.cuda()
            net(torch.randn(512, 1024, device="cuda")).sum().backward()
            """,
        ).peak_allocated
        for plain in (True, False)
    ]
    assert peaks[0] == peaks[1]


def test_a_model_on_the_card_is_sharded_without_a_mesh(tmp_path: Path) -> None:
    code = """
        import torch, torch.distributed as dist
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.device_mesh import init_device_mesh
        dist.init_process_group("nccl", world_size=8)
        net = torch.nn.Linear(1024, 1024).cuda()
        fully_shard(net{mesh})
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            net(torch.randn(8, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    mesh = ', mesh=init_device_mesh("cuda", (8,))'
    without, with_mesh = (traced(tmp_path, code.format(mesh=text)).peak_allocated for text in ("", mesh))
    assert without == with_mesh


def test_a_linear_call_of_strided_input_adds_its_bias_in_place_as_the_layer_does(tmp_path: Path) -> None:
    peaks = [
        traced(
            tmp_path,
            f"""
            import torch
            layer = torch.nn.Linear(512, 1536).cuda()
            strided = torch.randn(8, 128, 512, device="cuda").transpose(0, 1)
            out = {call}
            """,
        ).peak_allocated
        for call in ("layer(strided)", "torch.nn.functional.linear(strided, layer.weight, layer.bias)")
    ]
    assert peaks[0] == peaks[1]


def test_what_follows_an_optimizer_made_before_the_move_counts(tmp_path: Path) -> None:
    result = traced(
        tmp_path,
        """
        import torch
        net = torch.nn.Linear(64, 64)
        optimizer = torch.optim.Adam(net.parameters())
        net.to("cuda")
        """,
    )
    assert result.peak_allocated == 64 * 64 * 4 + 512  # the bias in a block of 512


def test_the_persons_own_path_comes_before_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src" / "msgspec_user").mkdir(parents=True)
    (tmp_path / "src" / "pluggy.py").write_text("WHERE = 'src'", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))
    traced(tmp_path, "import sys; sys.modules.pop('pluggy', None); import pluggy; assert pluggy.WHERE == 'src'")


def test_a_model_on_the_card_is_wrapped_by_the_older_fsdp(tmp_path: Path) -> None:
    result = traced(
        tmp_path,
        """
        import torch, torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel
        dist.init_process_group("nccl", world_size=8)
        net = FullyShardedDataParallel(torch.nn.Linear(1024, 1024).cuda(), device_id=torch.cuda.current_device())
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            net(torch.randn(8, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    )
    shard = (1024 * 1024 + 1024) * 4 // 8  # bytes of an eighth of the weights
    assert result.timeline[1].categories["weights"] == shard
    assert max(row.categories.get("optimizer", 0) for row in result.timeline) >= 2 * shard


def test_a_tensor_that_another_stream_uses_is_recorded_there(tmp_path: Path) -> None:
    traced(
        tmp_path,
        """
        import torch
        tensor = torch.zeros(8, device="cuda")
        tensor.record_stream(torch.cuda.Stream())
        """,
    )
