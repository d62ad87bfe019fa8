"""Every way in which code names the card, on a PyTorch without CUDA as on one with it."""

from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced

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
            with torch.device("cuda"):
                assert make(array).is_cuda
        assert torch.from_numpy(array).to({device}).is_cuda
        torch.set_default_device({device})
        assert all(make(array).is_cuda for make in (torch.as_tensor, torch.tensor, torch.asarray))
        """,
    )


def test_a_deep_copy_takes_memory_of_its_own_and_keeps_what_is_shared_and_known(tmp_path: Path) -> None:
    traced(
        tmp_path,
        """
        import copy
        import torch
        with torch.device("cuda"):
            layer = torch.nn.TransformerEncoderLayer(64, 2, 128)
            layer.register_buffer("counted", torch.arange(7))
            layer.register_buffer("head", layer.counted[:3])
        before = torch.cuda.memory_allocated()
        copied = copy.deepcopy(layer)
        assert torch.cuda.memory_allocated() == 2 * before
        names, others = dict(layer.named_parameters()), dict(copied.named_parameters())
        assert not {names[one].data_ptr() for one in names} & {others[one].data_ptr() for one in names}
        assert copied.head.data_ptr() == copied.counted.data_ptr() != layer.counted.data_ptr()
        copied.counted[2] = 9
        assert copied.head.tolist() == [0, 1, 9] and layer.head.tolist() == [0, 1, 2]
        assert all(isinstance(one, torch.nn.Parameter) and one.requires_grad for one in copied.parameters())
        empty = torch.zeros(0, device="cuda").set_(torch.zeros(1 << 20, device="cuda").untyped_storage().clone())
        assert torch.cuda.memory_allocated() >= 2 * before + empty.untyped_storage().nbytes()
        """,
    )


def test_data_parallel_copies_from_the_host_on_a_stream_of_its_own(tmp_path: Path) -> None:
    """Peaks of PyTorch 2.13's CUDA build on a stubbed driver (A100): the copies fall into segments of their own."""
    result = traced(
        tmp_path,
        """
        import torch
        from torch import nn
        net = nn.DataParallel(nn.Sequential(nn.Linear(1000, 3000), nn.ReLU(), nn.Linear(3000, 10))).cuda()
        optimizer, loss = torch.optim.Adam(net.parameters()), nn.DataParallel(nn.CrossEntropyLoss())
        for i in range(3):
            rows = 64 + i * 128
            off = loss(net(torch.randn(rows, 1000)), torch.zeros(rows).long()).mean()
            optimizer.zero_grad()
            off.backward()
            optimizer.step()
        """,
    )
    assert (result.peak_allocated, result.peak_reserved) == (80_620_032, 111_149_056)


def test_modules_run_side_by_side_on_the_one_card(tmp_path: Path) -> None:
    traced(
        tmp_path,
        """
        import torch
        from torch.nn.parallel import gather, parallel_apply, replicate, scatter
        net = torch.nn.Linear(4, 4).cuda()
        out = gather(parallel_apply(replicate(net, [0]), scatter(torch.rand(8, 4), [0])), 0)
        assert out.shape == (8, 4) and out.is_cuda
        with torch.cuda.Stream() as stream:
            assert torch.accelerator.current_stream() is stream
        assert torch.accelerator.current_stream() is torch.cuda.default_stream()
        """,
    )


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


@pytest.mark.parametrize(("place", "width"), [("cpu", 64), ("cpu", 512), ("cpu", 1_024), ("cuda", 1_024)])
@pytest.mark.parametrize("precision", ["", ", mixed_precision=MixedPrecision(torch.bfloat16, torch.bfloat16)"])
def test_the_older_fsdp_wraps_layers_of_a_model(tmp_path: Path, place: str, width: int, precision: str) -> None:
    """The model itself has no weights left by then, and those of its layers become views of numbers of another type."""
    result = traced(
        tmp_path,
        f"""
        import torch, torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        dist.init_process_group("nccl", world_size=8)
        net = torch.nn.Sequential(*[torch.nn.Linear({width}, {width}, bias=False) for _ in range(3)]).to("{place}")
        how = dict(auto_wrap_policy=ModuleWrapPolicy({{torch.nn.Linear}}), use_orig_params=True{precision})
        net = FullyShardedDataParallel(net, device_id=torch.cuda.current_device(), **how)
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            net(torch.randn(8, {width}, device="cuda")).sum().backward()
            net.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
        """,
    )
    shards = 3 * width * width * 4 // 8
    assert result.timeline[1].categories["weights"] == shards
    assert max(row.categories.get("optimizer", 0) for row in result.timeline) >= 2 * shards


@pytest.mark.parametrize("width", [1, 65, 1_025])
def test_a_compiled_model_moves_to_the_card(tmp_path: Path, width: int) -> None:
    """TorchScript holds its weights itself, besides the objects that Python has for them."""
    peaks = [
        traced(
            tmp_path,
            f"""
            import torch
            net = {made}.cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(3):
                net(torch.randn(2, {width}, device="cuda")).sum().backward()
                optimizer.step()
            """,
        ).peak_allocated
        for net in [f"torch.nn.Sequential(torch.nn.Linear({width}, {width}), torch.nn.BatchNorm1d({width}))"]
        for made in (net, f"torch.jit.script({net})")
    ]
    assert peaks[0] == peaks[1]


@pytest.mark.parametrize("places", [1, 65, 1_025, 70_000])
def test_a_plain_tensor_is_one_of_the_default_type(tmp_path: Path, places: int) -> None:
    traced(
        tmp_path,
        f"""
        import numpy, torch
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
        ones = [1.0] * {places}
        for made in (torch.Tensor(ones), torch.Tensor(numpy.ones({places})), torch.Tensor({places}), torch.Tensor(
                     torch.Size([{places}])), torch.Tensor(torch.ones({places})), torch.cuda.FloatTensor(ones)):
            assert made.is_cuda and made.shape == ({places},) and made.dtype is torch.float32
        assert not torch.FloatTensor(ones).is_cuda and torch.Tensor().shape == (0,)
        torch.nn.Linear({places}, 1)(torch.Tensor(ones)).backward()
        torch.set_default_tensor_type(torch.FloatTensor)
        assert not torch.Tensor(ones).is_cuda and torch.Tensor(ones).sum() == {places}
        """,
    )


# What a `map_location` may be, and whether what lay on the card and what lay on the host come to the card.
@pytest.mark.parametrize(
    ("location", "from_card", "from_host"),
    [
        ("None", True, False),
        ('"cpu"', False, False),
        ('"cuda"', True, True),
        ('torch.device("cuda", 0)', True, True),
        ("lambda storage, place: storage", False, False),
        ("lambda storage, place: storage.cuda(0)", True, True),
        ("lambda storage, place: None", True, False),
        ('{"cuda:0": "cpu"}', False, False),
        ('{"cpu": "cuda:0"}', True, True),
    ],
)
def test_what_was_saved_is_loaded_to_where_the_code_says(
    tmp_path: Path, location: str, *, from_card: bool, from_host: bool
) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.ones(3), tmp_path / "real.pt")
    traced(
        tmp_path,
        f"""
        import torch
        where = {location}
        net = torch.nn.Linear(70, 1_000)
        torch.save({{"host": torch.ones(3), "card": net.cuda().state_dict()}}, "both.pt")
        torch.save(net, "net.pt")
        both = torch.load("both.pt", map_location=where)
        assert both["host"].is_cuda is {from_host} and both["card"]["weight"].is_cuda is {from_card}
        assert torch.load("net.pt", map_location=where, weights_only=False).weight.is_cuda is {from_card}
        assert torch.load({str(tmp_path / "real.pt")!r}, map_location=where).is_cuda is {from_host}
        """,
    )


def test_lazy_layers_take_their_shapes_from_the_first_batch(tmp_path: Path) -> None:
    """The figures are those of PyTorch 2.13's CUDA build on a stubbed driver of compute capability 8.0."""
    timeline = traced(
        tmp_path,
        """
        import torch
        from torch import nn
        net = nn.Sequential(
            nn.LazyConv2d(16, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(300), nn.ReLU(),
            nn.LazyLinear(10),
        ).cuda()
        with torch.no_grad():
            net(torch.randn(4, 3, 16, 16, device="cuda"))
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            net(torch.randn(128, 3, 16, 16, device="cuda")).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    )
    assert (timeline.peak_allocated, timeline.peak_reserved) == (39_088_128, 44_040_192)


@pytest.mark.parametrize("made", ['device="cuda"', ""])
def test_lazy_layers_are_parameters_wherever_they_were_made(tmp_path: Path, made: str) -> None:
    traced(
        tmp_path,
        f"""
        import torch
        from torch import nn
        net = nn.Sequential(nn.LazyLinear(65, {made}), nn.LazyLinear(10, bias=False, {made})).cuda()
        assert all(isinstance(one, nn.parameter.UninitializedParameter) for one in net.parameters())
        net(torch.randn(4, 32, device="cuda"))
        assert [tuple(one.shape) for one in net.parameters()] == [(65, 32), (65,), (10, 65)]
        assert all(isinstance(one, nn.Parameter) and one.is_cuda and one.requires_grad for one in net.parameters())
        assert not any(nn.parameter.is_lazy(one) for one in net.parameters())
        """,
    )


@pytest.mark.parametrize("move", ["cuda()", 'to("cuda")', 'to("cuda", torch.float64)', 'to(device="cuda")'])
def test_lazy_buffers_go_to_the_card_by_every_way(tmp_path: Path, move: str) -> None:
    traced(
        tmp_path,
        f"""
        import torch
        from torch import nn
        net = nn.LazyBatchNorm1d().{move}
        kind = net.weight.data.dtype
        net(torch.randn(4, 65, device="cuda", dtype=kind))
        assert net.running_mean.is_cuda and net.running_mean.shape == (65,) and net.running_mean.dtype == kind
        assert sorted(net.state_dict()) == ["bias", "num_batches_tracked", "running_mean", "running_var", "weight"]
        """,
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("width", [8, 65, 1_025])
def test_every_storage_has_a_distinct_and_stable_address(tmp_path: Path, device: str, width: int) -> None:
    """Optimizers' parameters are found by it (accelerate's FSDP2), tied weights and checkpoints without duplicates."""
    traced(
        tmp_path,
        f"""
        import torch
        net = torch.nn.Sequential(*(torch.nn.Linear({width}, {width}) for _ in range(8))).to("{device}")
        net[3].weight = net[1].weight
        names = [name for name, _ in net.named_parameters(remove_duplicate=False)]
        first = {{name: one.data_ptr() for name, one in net.named_parameters(remove_duplicate=False)}}
        assert len(names) == 16 and len(set(first.values())) == 15 and all(first.values())
        assert first["1.weight"] == first["3.weight"]
        net(torch.zeros(2, {width}, device="{device}")).sum().backward()
        assert first == {{name: one.data_ptr() for name, one in net.named_parameters(remove_duplicate=False)}}
        weight = net[0].weight.detach()
        assert weight[1].data_ptr() == weight.data_ptr() + {width} * 4
        assert weight.untyped_storage().data_ptr() == weight.storage().data_ptr() == weight.data_ptr()
        assert torch.empty(0, device="{device}").data_ptr() == 0
        torch.zeros(1, device="cuda")
        """,
    )
