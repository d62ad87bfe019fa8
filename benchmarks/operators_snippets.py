"""What people write beside operators, each as a function of the device: `operators_sweep.py snippets` runs all of them."""

import copy
import io
import pickle
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune, rnn
from torch.utils.checkpoint import checkpoint

Device = str


def _net(device: Device) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)


def _x(device: Device, *shape: int) -> torch.Tensor:
    return torch.randn(shape or (4, 8), device=device)


def indexing_by_masks(device: Device) -> Any:
    x = _x(device)
    mask = torch.tensor([[True, False] * 4] * 4, device=device)
    x[mask] = 0
    x[x > 0.5] = x[x > 0.5] * 2
    x[0, mask[0]] += 1
    x[:, [0, 2]] = x[:, [2, 0]]
    return x, x[..., None, ::2], x[torch.arange(4, device=device), torch.zeros(4, dtype=torch.long, device=device)]


def indexing_with_host_indices(device: Device) -> Any:
    x = _x(device)
    return x[torch.tensor([0, 1])], x[torch.tensor([True, False, True, True])], x[[0, -1]], x[-1], x[range(2)]


def writes_into_views(device: Device) -> Any:
    x = _x(device).requires_grad_()
    y = x * 2
    y[1:].mul_(3)
    y.view(-1)[::3].zero_()
    y.t()[0].add_(1)
    y.diagonal().fill_(2)
    y.select(0, 1).copy_(y[2])
    y.sum().backward()
    return y, x.grad


def reads(device: Device) -> Any:
    x = _x(device)
    x.sum().item(), x.tolist(), float(x[0, 0]), int(x[0, 0]), bool(x[0, 0] > 9), str(x), repr(x), f"{x[0, 0]:.3f}"
    f"{x.mean()}", x.cpu().numpy(), x.detach().cpu().numpy().astype("float64"), len(x), list(x), x.numel()
    return x.shape, x.size(0), x.is_contiguous(), x.element_size(), hash(x) is not None, x.dim(), 0.5 in x


def copies_and_pickles(device: Device) -> Any:
    x = _x(device).requires_grad_()
    net = _net(device)
    file = io.BytesIO()
    torch.save({"x": x, "net": net.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file)
    file.seek(0)
    on_host = torch.load(file, map_location="cpu")["x"].to(device)
    net.load_state_dict(loaded["net"])
    return copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), loaded["x"], on_host, copy.deepcopy(net)(x)


def devices(device: Device) -> Any:
    x = _x(device)
    there = torch.device(x.device.type, 0) if device == "cuda" else torch.device("cpu")
    same = [x.device == there, str(x.device) == str(there), x.to(there) is x, x.device.type == device]
    if not all(same):
        raise ValueError(same)
    return x.new_zeros(2), x.new_tensor([1.0]), torch.empty_like(x), torch.zeros(2, device=x.device), x.get_device()


def device_by_number(device: Device) -> Any:
    if device == "cpu":
        return "cuda", "cuda:0", 0, torch.zeros(2)
    return (
        torch.device(0).type,
        str(torch.device(0)),
        torch.device(0).index,
        torch.zeros(2, device=torch.device(0)).cpu(),
    )


def default_device(device: Device) -> Any:
    torch.set_default_device(device)
    try:
        return torch.zeros(2), torch.tensor([1.0]), nn.Linear(2, 2).weight, torch.get_default_device().type == device
    finally:
        torch.set_default_device("cpu")


def device_context(device: Device) -> Any:
    with torch.device(device):
        return torch.arange(3), torch.ones(2), nn.Linear(2, 2)(torch.randn(1, 2)), torch.randperm(4), torch.eye(2)


def lazy_layers(device: Device) -> Any:
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3)).to(device)
    out = net(torch.randn(2, 3, 8, 8, device=device))
    out.sum().backward()
    return out, [one.grad for one in net.parameters()]


def lazy_layers_by_half(device: Device) -> Any:
    net = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()).to(device).half().float().double().to(torch.float32)
    return net(torch.randn(4, 3, device=device)), list(net.buffers())


def scripted(device: Device) -> Any:
    net = torch.jit.script(_net("cpu")).to(device)
    return net(_x(device)), torch.jit.trace(_net(device), _x(device))(_x(device))


def scripted_function(device: Device) -> Any:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return torch.jit.trace(double, _x(device))(_x(device))


def weight_norm(device: Device) -> Any:
    net = parametrizations.weight_norm(nn.Linear(8, 3)).to(device)
    old = nn.utils.weight_norm(nn.Linear(8, 3)).to(device)
    out = net(_x(device)) + old(_x(device))
    out.sum().backward()
    return out, [one.grad for one in (*net.parameters(), *old.parameters())]


def spectral_norm(device: Device) -> Any:
    net = parametrizations.spectral_norm(nn.Conv2d(3, 3, 3)).to(device)
    old = nn.utils.spectral_norm(nn.Linear(8, 3)).to(device)
    out = net(_x(device, 2, 3, 8, 8)).sum() + old(_x(device)).sum()
    out.backward()
    return out, [one.grad for one in net.parameters()], list(old.buffers())


def orthogonal(device: Device) -> Any:
    net = parametrizations.orthogonal(nn.Linear(8, 8)).to(device)
    out = net(_x(device))
    out.sum().backward()
    return out, [one.grad for one in net.parameters()]


def pruning(device: Device) -> Any:
    net = nn.Linear(8, 8).to(device)
    prune.l1_unstructured(net, "weight", amount=0.3)
    prune.random_structured(net, "bias", amount=2, dim=0)
    out = net(_x(device))
    prune.remove(net, "weight")
    return out, net.weight, list(net.buffers())


def packed_sequences(device: Device) -> Any:
    net = nn.LSTM(8, 5, 2, batch_first=True, bidirectional=True).to(device)
    packed = rnn.pack_padded_sequence(
        _x(device, 3, 7, 8), torch.tensor([7, 3, 5]), batch_first=True, enforce_sorted=False
    )
    out, (hidden, cell) = net(packed)
    padded, lengths = rnn.pad_packed_sequence(out, batch_first=True)
    padded.sum().backward()
    return padded, lengths, hidden, cell, rnn.pad_sequence([_x(device, 2), _x(device, 3)])


def packed_gru(device: Device) -> Any:
    net = nn.GRU(8, 5).to(device)
    out, hidden = net(rnn.pack_sequence([_x(device, 4, 8), _x(device, 2, 8)]))
    return out.data, hidden, rnn.unpack_sequence(out)


def parameter_vectors(device: Device) -> Any:
    net = _net(device)
    vector = nn.utils.parameters_to_vector(net.parameters())
    nn.utils.vector_to_parameters(vector * 2, net.parameters())
    net(_x(device)).sum().backward()
    total = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    nn.utils.clip_grad_value_(net.parameters(), 1.0)
    return vector, total, nn.utils.get_total_norm([one.grad for one in net.parameters()])


def func_transforms(device: Device) -> Any:
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

    def lose(x: torch.Tensor) -> torch.Tensor:
        return x.sin().prod()

    x = _x(device, 4)
    several = _x(device, 3, 4)
    primal, pull = vjp(lose, x)
    return (grad(lose)(x), jacrev(torch.sin)(x), jacfwd(torch.sin)(x), hessian(lose)(x), vmap(grad(lose))(several),
            jvp(lose, (x,), (x,)), primal, pull(primal))  # fmt: skip


def functional_calls(device: Device) -> Any:
    from torch.func import functional_call, grad_and_value, stack_module_state, vmap

    net = _net(device)
    weights = {name: one.detach() for name, one in net.named_parameters()}

    def lose(given: Any, x: torch.Tensor) -> torch.Tensor:
        return functional_call(net, given, (x,)).square().mean()

    several, buffers = stack_module_state([_net(device), _net(device)])
    per_sample = vmap(grad_and_value(lose), in_dims=(None, 0))(weights, _x(device, 5, 8))
    ensemble = vmap(lambda one, kept, x: functional_call(net, (one, kept), (x,)), (0, 0, None))(
        several, buffers, _x(device)
    )
    return functional_call(net, weights, (_x(device),)), per_sample, ensemble


def autograd_functional(device: Device) -> Any:
    from torch.autograd.functional import hessian, hvp, jacobian, vhp

    def lose(x: torch.Tensor) -> torch.Tensor:
        return (x**3).sum()

    x = _x(device, 4)
    return (
        jacobian(torch.sin, x),
        hessian(lose, x),
        hvp(lose, x, x),
        vhp(lose, x, x),
        jacobian(torch.exp, x, vectorize=True),
    )


def own_function(device: Device) -> Any:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.mark_non_differentiable()
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad

    x = _x(device).requires_grad_()
    out = Cube.apply(x)
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return out, first, second


def forward_gradients(device: Device) -> Any:
    import torch.autograd.forward_ad as fwAD

    with fwAD.dual_level():
        dual = fwAD.make_dual(_x(device), _x(device))
        return fwAD.unpack_dual(_net(device)(dual)).tangent


def checkpointing(device: Device) -> Any:
    net = _net(device)
    x = _x(device).requires_grad_()
    out = checkpoint(net, x, use_reentrant=False) + checkpoint(net, x, use_reentrant=True)
    out.sum().backward()
    return out, x.grad


def saved_elsewhere(device: Device) -> Any:
    x = _x(device).requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        y = x.exp()
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one.cpu(), lambda one: one.to(device)):
        z = (y * y).sin()
    z.sum().backward()
    return z, x.grad


def hooks(device: Device) -> Any:
    net = _net(device)
    seen: list[Any] = []
    net[0].register_forward_hook(lambda _module, _inputs, out: seen.append(out))
    net[0].register_full_backward_hook(lambda _module, _grads, outs: seen.append(outs[0]))
    x = _x(device).requires_grad_()
    x.register_hook(lambda grad: grad * 2)
    net[0].weight.register_post_accumulate_grad_hook(lambda one: seen.append(one.grad))
    net(x).sum().backward()
    return seen, x.grad


def mixed_precision(device: Device) -> Any:
    net, x = _net(device), _x(device)
    scaler = torch.amp.GradScaler(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with torch.autocast(device, dtype=torch.bfloat16):
        out = net(x)
        loss = F.cross_entropy(out.float(), torch.zeros(4, dtype=torch.long, device=device))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return out, loss, torch.is_autocast_enabled(device), scaler.state_dict().keys() >= set()


def fourier(device: Device) -> Any:
    x = _x(device, 4, 16).requires_grad_()
    back = torch.fft.irfft(torch.fft.rfft(x), n=16)
    spectrum = torch.stft(x, 8, return_complex=True, window=torch.hann_window(8, device=device))
    spectrum.abs().sum().backward()
    return (
        back,
        torch.fft.fft2(x),
        torch.fft.fftshift(x),
        spectrum,
        torch.istft(spectrum, 8, window=torch.ones(8, device=device)),
        x.grad,
    )


def linear_algebra(device: Device) -> Any:
    x = _x(device, 4, 4)
    positive = (x @ x.mT + 4 * torch.eye(4, device=device)).requires_grad_()
    lower = torch.linalg.cholesky(positive)
    out = (torch.linalg.solve(positive, x), torch.cholesky_solve(x, lower), torch.linalg.inv(positive),
           torch.linalg.svd(positive), torch.linalg.eigh(positive), torch.linalg.qr(positive), torch.linalg.det(positive),
           torch.linalg.slogdet(positive), torch.linalg.lstsq(x, x), torch.linalg.matrix_exp(x), torch.linalg.norm(x),
           torch.linalg.eig(x), torch.logdet(positive), torch.linalg.pinv(x), torch.linalg.matrix_rank(x))  # fmt: skip
    (out[0].sum() + out[7].logabsdet + out[4].eigenvalues.sum()).backward()
    return out, positive.grad


def sparse_tensors(device: Device) -> Any:
    dense = torch.eye(4, device=device)
    coo, csr = dense.to_sparse(), dense.to_sparse_csr()
    made = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]], device=device), torch.ones(2, device=device), (4, 4))
    x = _x(device, 4, 3).requires_grad_()
    out = torch.sparse.mm(coo, x) + csr @ x + made.coalesce() @ x
    out.sum().backward()
    return out, x.grad, coo.to_dense(), coo.indices(), coo.values(), csr.crow_indices(), made.t().to_dense(), coo._nnz()


def nested_tensors(device: Device) -> Any:
    nested = torch.nested.nested_tensor([_x(device, 2, 3), _x(device, 4, 3)], layout=torch.jagged)
    return torch.nested.to_padded_tensor(nested, 0.0), nested.values(), nested.offsets()


def masked_tensors(device: Device) -> Any:
    from torch import masked

    x, mask = _x(device), torch.ones(4, 8, dtype=torch.bool, device=device)
    return (
        masked.softmax(x, 1, mask=mask),
        masked.sum(x, 1, mask=mask),
        masked.mean(x, 0, mask=mask),
        masked.amax(x, 1, mask=mask),
    )


def complex_numbers(device: Device) -> Any:
    x = torch.complex(_x(device), _x(device)).requires_grad_()
    out = (x * x.conj()).real + x.abs() + x.angle()
    out.sum().backward()
    return (
        out,
        x.grad,
        torch.view_as_real(x.detach()),
        torch.polar(_x(device).abs(), _x(device)),
        x.detach().resolve_conj(),
        x.detach().mH,
    )


def quantization(device: Device) -> Any:
    x = _x(device)
    scale, zero = torch.tensor(0.1, device=device), torch.tensor(0, dtype=torch.int32, device=device)
    fake = torch.fake_quantize_per_tensor_affine(x, scale, zero, -128, 127)
    observer = torch.ao.quantization.MinMaxObserver().to(device)
    observer(x)
    return fake, observer.calculate_qparams(), torch.ao.quantization.FakeQuantize().to(device)(x)


def quantization_aware_training(device: Device) -> Any:
    from torch.ao import quantization as ao

    net = nn.Sequential(ao.QuantStub(), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), ao.DeQuantStub())
    net.qconfig = ao.get_default_qat_qconfig("fbgemm")
    ao.fuse_modules_qat(net.train(), [["1", "2", "3"]], inplace=True)
    ao.prepare_qat(net, inplace=True)
    net = net.to(device)
    out = net(torch.randn(2, 3, 8, 8, device=device))
    out.sum().backward()
    return out, [one.grad for one in net.parameters()]


def profiled(device: Device) -> Any:
    with torch.profiler.profile(record_shapes=True, profile_memory=True) as seen, torch.profiler.record_function("net"):
        out = _net(device)(_x(device))
    seen.key_averages().table(row_limit=2)
    with torch.autograd.profiler.record_function("again"):
        pass
    return out


def cuda_facts(device: Device) -> Any:
    if device == "cuda":
        torch.cuda.get_device_properties(0).total_memory, torch.cuda.get_device_name(), torch.cuda.device_count()
        (
            torch.cuda.get_device_capability(0),
            torch.cuda.mem_get_info(),
            torch.cuda.memory_summary(),
            torch.cuda.memory_stats(),
        )
        torch.cuda.memory_snapshot(), torch.cuda.max_memory_reserved("cuda:0"), torch.cuda.memory_reserved(0)
        (
            torch.cuda.reset_peak_memory_stats(),
            torch.cuda.empty_cache(),
            torch.cuda.ipc_collect(),
            torch.cuda.list_gpu_processes(),
        )
        (
            torch.cuda.set_per_process_memory_fraction(0.9),
            torch.cuda.reset_max_memory_allocated(),
            torch.cuda.is_bf16_supported(),
        )
        (
            torch.cuda.get_arch_list(),
            torch.cuda.get_gencode_flags(),
            torch.cuda.current_blas_handle(),
            torch.cuda.utilization(),
        )
        (
            torch.cuda.get_allocator_backend(),
            torch.cuda.memory_usage(),
            torch.cuda.temperature(),
            torch.cuda.get_stream_from_external,
        )
        torch.cuda.can_device_access_peer(0, 0), torch.cuda.get_sync_debug_mode(), torch.cuda.host_memory_stats()
        torch.cuda.get_device_properties("cuda").multi_processor_count, torch.cuda.get_device_properties(0).uuid
        (
            torch.cuda.is_tf32_supported(),
            torch.cuda.device_memory_used(),
            torch.cuda.memory_allocated(torch.device("cuda")),
        )
        (
            torch.cuda.get_per_process_memory_fraction(),
            torch.cuda.mem_get_info("cuda"),
            str(torch.cuda.get_device_properties(0)),
        )
    return 0


def cuda_random(device: Device) -> Any:
    if device == "cuda":
        (
            torch.cuda.manual_seed(1),
            torch.cuda.manual_seed_all(1),
            torch.cuda.seed(),
            torch.cuda.seed_all(),
            torch.cuda.initial_seed(),
        )
        (
            torch.cuda.set_rng_state(torch.cuda.get_rng_state()),
            torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all()),
        )
        torch.cuda.default_generators[0].get_state()
    generator = torch.Generator(device=device).manual_seed(2)
    with torch.random.fork_rng():
        first = torch.randn(3, generator=generator, device=device)
    return (
        first,
        torch.randperm(5, generator=generator, device=device),
        generator.initial_seed(),
        generator.device.type == device,
    )


def cuda_streams(device: Device) -> Any:
    x = _x(device)
    if device == "cpu":
        return x + 1
    stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    event.record()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = x + 1
        y.record_stream(stream)
    torch.cuda.current_stream().wait_stream(stream)
    done = torch.cuda.Event(enable_timing=True)
    done.record(stream)
    done.synchronize()
    torch.cuda.synchronize()
    (
        event.elapsed_time(done),
        stream.query(),
        stream.priority,
        torch.cuda.Stream.priority_range(),
        torch.cuda.current_stream("cuda:0"),
    )
    (
        torch.cuda.ExternalStream(stream.cuda_stream),
        stream == torch.cuda.current_stream(),
        hash(stream),
        torch.Stream(device="cuda"),
    )
    return y


def cuda_graphs(device: Device) -> Any:
    x, net = _x(device), _net(device)
    if device == "cpu":
        return net(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = net(x)
    graph.replay()
    torch.cuda.make_graphed_callables(net, (x,))(x)
    return out


def cuda_ranges(device: Device) -> Any:
    if device == "cuda":
        with torch.cuda.nvtx.range("a"), torch.autograd.profiler.emit_nvtx():
            torch.cuda.nvtx.range_push("b")
            torch.cuda.nvtx.range_pop()
            torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("c"))
            torch.cuda.nvtx.mark("d")
    return 0


def cuda_memory_history(device: Device) -> Any:
    if device == "cuda":
        torch.cuda.memory._record_memory_history()
        torch.zeros(3, device="cuda")
        torch.cuda.memory._dump_snapshot("snapshot.pickle")
        torch.cuda.memory._record_memory_history(enabled=None)
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            torch.zeros(3, device="cuda")
        torch.cuda.memory.caching_allocator_alloc
    return 0


def cuda_old_types(device: Device) -> Any:
    if device == "cpu":
        return torch.FloatTensor(2, 3), torch.LongTensor([1]), torch.zeros(2).type(torch.float64)
    return torch.cuda.FloatTensor(2, 3), torch.cuda.LongTensor([1]), torch.zeros(2).cuda().type(torch.cuda.DoubleTensor)


def backends(device: Device) -> Any:
    torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.enabled
    torch.set_float32_matmul_precision("high"), torch.backends.cuda.flash_sdp_enabled(), torch.backends.cudnn.flags
    torch.set_float32_matmul_precision("highest")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        q = torch.randn(2, 4, 8, 16, device=device)
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)


def deterministic(device: Device) -> Any:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        x = _x(device).requires_grad_()
        x.index_add(0, torch.tensor([0, 1], device=device), _x(device, 2, 8)).sum().backward()
        return x.grad, torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def anomalies(device: Device) -> Any:
    with torch.autograd.detect_anomaly(check_nan=False):
        x = _x(device).requires_grad_()
        x.exp().sum().backward()
    with torch.autograd.set_detect_anomaly(True):
        (x * 2).sum().backward()
    return x.grad


def inference(device: Device) -> Any:
    with torch.inference_mode():
        out = _net(device)(_x(device))
    with torch.no_grad():
        again = _net(device)(_x(device))
    return out, out.is_inference(), again, torch.is_grad_enabled()


def loaders(device: Device) -> Any:
    from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler, default_collate, random_split

    data = TensorDataset(torch.randn(12, 4), torch.arange(12))
    one, _two = random_split(data, [8, 4])
    sampler = WeightedRandomSampler(torch.ones(12), 12)
    seen = [
        [part.to(device, non_blocking=True) for part in batch]
        for batch in DataLoader(one, 4, shuffle=True, pin_memory=True)
    ]
    seen += [[part.to(device) for part in batch] for batch in DataLoader(data, 5, sampler=sampler, drop_last=True)]
    rows = [
        {"a": torch.ones(2), "b": 1, "c": "x", "d": (1.0, [2])},
        {"a": torch.ones(2), "b": 2, "c": "y", "d": (1.0, [2])},
    ]
    batch = default_collate(rows)
    by_rows = next(
        iter(DataLoader(rows, 2, collate_fn=lambda given: {"n": len(given), "a": torch.stack([r["a"] for r in given])}))
    )
    return seen, batch["a"].to(device), batch["b"].to(device), by_rows["a"].to(device), batch["d"]


def data_on_the_card(device: Device) -> Any:
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(_x(device, 8, 4), torch.arange(8, device=device))
    return list(DataLoader(data, 4, shuffle=True)), data[2]


def parameters(device: Device) -> Any:
    net = _net(device)
    net.register_buffer("seen", torch.zeros(1, device=device))
    net.extra = nn.Parameter(torch.zeros(2, device=device))
    several = nn.ParameterList([nn.Parameter(_x(device, 2))]), nn.ParameterDict({"a": nn.Parameter(_x(device, 2))})
    net[0].weight.data = net[0].weight.data.clone()
    net[0].weight.data.normal_()
    nn.init.xavier_uniform_(net[0].weight)
    nn.init.orthogonal_(net[0].weight)
    nn.init.trunc_normal_(net[2].weight, std=0.02)
    nn.init.kaiming_normal_(net[2].weight)
    nn.init.sparse_(net[2].weight, 0.1)
    nn.init.dirac_(torch.empty(3, 3, 3, device=device))
    with torch.no_grad():
        net[0].weight.copy_(torch.zeros(8, 8))
        net[2].bias += 1
    return (
        [one.detach() for one in net.state_dict().values()],
        [list(one.parameters()) for one in several],
        sum(p.numel() for p in net.parameters()),
    )


def averaged_models(device: Device) -> Any:
    from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(device)
    averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = SWALR(optimizer, swa_lr=0.05)
    averaged.update_parameters(net)
    averaged.update_parameters(net)
    schedule.step()
    update_bn([_x(device, 4, 4)], averaged, device=device)
    return averaged(_x(device, 4, 4)), list(averaged.buffers())


def schedules(device: Device) -> Any:
    from torch.optim import lr_scheduler as lr

    net = _net(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=torch.tensor(0.1, device=device), fused=False)
    steps = [lr.StepLR(optimizer, 1), lr.CosineAnnealingLR(optimizer, 3), lr.OneCycleLR(optimizer, 0.1, total_steps=5),
             lr.LambdaLR(optimizer, lambda _epoch: 0.5), lr.LinearLR(optimizer)]  # fmt: skip
    net(_x(device)).sum().backward()
    optimizer.step()
    for one in steps:
        one.step()
    plateau = lr.ReduceLROnPlateau(optimizer)
    plateau.step(net(_x(device)).mean())
    return [one.detach() for one in net.parameters()], optimizer.param_groups[0]["lr"]


def fx_and_export(device: Device) -> Any:
    net = _net(device)
    return torch.fx.symbolic_trace(net)(_x(device)), torch.export.export(net, (_x(device),)).module()(_x(device))


def made_fx(device: Device) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    net = _net(device)
    graph = make_fx(lambda x: torch.autograd.grad(net(x).sum(), x)[0])(_x(device).requires_grad_())
    return graph(_x(device).requires_grad_()).detach()


def made_fx_symbolic(device: Device) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: (x * 2).sum(0), tracing_mode="symbolic", _allow_non_fake_inputs=True)(_x(device))
    return graph(_x(device, 6, 8))


def compiled(device: Device) -> Any:
    net = torch.compile(_net(device))
    out = net(_x(device))
    out.sum().backward()
    return out, torch.compiler.is_compiling()


def attention_layers(device: Device) -> Any:
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).to(device)
    mask = nn.Transformer.generate_square_subsequent_mask(5, device=device)
    padding = torch.zeros(3, 5, dtype=torch.bool, device=device)
    out = layer(_x(device, 3, 5, 8), mask, src_key_padding_mask=padding, is_causal=True)
    out.sum().backward()
    layer.eval()
    with torch.no_grad():
        fast = layer(_x(device, 3, 5, 8), src_key_padding_mask=padding)
    attention = nn.MultiheadAttention(8, 2).to(device)
    return out, fast, attention(*[_x(device, 5, 3, 8)] * 3, need_weights=True), [one.grad for one in layer.parameters()]


def sync_batch_norm(device: Device) -> Any:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(device)
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net) if device == "cuda" else net
    out = net(torch.randn(2, 3, 8, 8, device=device))
    out.sum().backward()
    return out, [one.grad for one in net.parameters()], list(net.buffers())


def data_dependent_counts(device: Device) -> Any:
    x = torch.tensor([3, 1, 3, 2], device=device)
    return (
        x.unique(),
        x.nonzero(),
        x.bincount(),
        x[x == 3],
        x.unique(return_inverse=True, return_counts=True),
        torch.where(x > 1),
    )


def sorts_and_searches(device: Device) -> Any:
    x = _x(device)
    return (x.sort(stable=True), x.topk(2), x.argsort(descending=True), x.kthvalue(1), x.median(1), x.mode(1), x.cummax(0),
            torch.searchsorted(torch.arange(4.0, device=device), x), torch.bucketize(x, torch.arange(4.0, device=device)),
            x.histc(4), x.quantile(0.5), torch.histogram(x.cpu(), 4), x.cov(), x.corrcoef(), x.msort(), x.unfold(1, 2, 1))  # fmt: skip


def numpy_mixed(device: Device) -> Any:
    import numpy as np

    x = _x(device)
    return (x * np.float32(2), x + np.float64(1), np.asarray(x.cpu()).shape, torch.from_numpy(np.ones(3)).to(device), x[np.array([0, 1])],
            torch.as_tensor(np.ones(2), device=device), torch.tensor(np.ones(2), device=device), x[:, np.int64(1)])  # fmt: skip


def numbers_mixed(device: Device) -> Any:
    x = torch.tensor(2.0, device=device)
    return (
        2**x,
        3 / x,
        x // 2,
        x % 2,
        divmod(5, 2),
        -x,
        abs(x),
        x.pow(2),
        round(float(x)),
        max(x, x + 1),
        sum([x, x]),
        x == 2,
        1 - x,
    )


def host_numbers_beside(device: Device) -> Any:
    return _x(device) * torch.tensor(2.0), _x(device).masked_fill(
        torch.ones(8, dtype=torch.bool, device=device), torch.tensor(0.0)
    )


def subclasses(device: Device) -> Any:
    class Image(torch.Tensor):
        pass

    x = _x(device).as_subclass(Image)
    return type(x * 2).__name__, x + 1, x.as_subclass(torch.Tensor), isinstance(x[0], Image)


def own_operator(device: Device) -> Any:
    @torch.library.custom_op("sweep::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(torch.empty_like)
    double.register_autograd(lambda _ctx, grad: grad * 2)
    x = _x(device).requires_grad_()
    out = torch.ops.sweep.double(x)
    out.sum().backward()
    return out, x.grad


def tensors_of_tensors(device: Device) -> Any:
    rows = [torch.tensor(1.0, device=device), torch.tensor(2.0, device=device)]
    return (
        torch.stack(rows),
        torch.tensor(rows),
        torch.tensor([[1.0]], device=device),
        torch.cat([torch.empty(0, device=device), rows[0].view(1)]),
    )


def storages(device: Device) -> Any:
    x = _x(device)
    (
        x.untyped_storage().nbytes(),
        x.data_ptr() != 0,
        x.storage_offset(),
        x.is_shared(),
        x.untyped_storage().data_ptr() == x.data_ptr(),
    )
    y = torch.empty(0, device=device).set_(x)
    y.resize_(2, 2)
    return y, x.share_memory_().shape, x.is_set_to(y), x.view(torch.int32), x.to(torch.float16).view(torch.int16)


def dlpack(device: Device) -> Any:
    return torch.from_dlpack(_x(device)), torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(_x(device)))


def losses(device: Device) -> Any:
    logits = _x(device).requires_grad_()
    target = torch.zeros(4, dtype=torch.long, device=device)
    several = [F.cross_entropy(logits, target, label_smoothing=0.1, ignore_index=-100), F.binary_cross_entropy_with_logits(logits, logits.sigmoid()),
               F.kl_div(logits.log_softmax(1), logits.softmax(1), reduction="batchmean"), F.smooth_l1_loss(logits, logits * 2), F.triplet_margin_loss(logits, logits + 1, logits - 1),
               F.ctc_loss(_x(device, 6, 2, 5).log_softmax(2), torch.ones(2, 3, dtype=torch.long, device=device), torch.tensor([6, 6]), torch.tensor([3, 2])),
               F.multi_margin_loss(logits, target), F.gaussian_nll_loss(logits, logits, torch.ones_like(logits)), F.cosine_embedding_loss(logits, logits, torch.ones(4, device=device))]  # fmt: skip
    torch.stack(several).sum().backward()
    return several, logits.grad


def images(device: Device) -> Any:
    x = torch.randn(2, 3, 8, 8, device=device)
    grid = F.affine_grid(torch.eye(2, 3, device=device).expand(2, 2, 3), (2, 3, 8, 8), align_corners=False)
    return (F.interpolate(x, scale_factor=2, mode="bicubic", antialias=True), F.grid_sample(x, grid, align_corners=False), F.pad(x, (1, 2), mode="reflect"),
            F.unfold(x, 3), F.fold(F.unfold(x, 2), (8, 8), 2), F.pixel_shuffle(torch.randn(1, 4, 2, 2, device=device), 2), F.adaptive_avg_pool2d(x, 1), x.to(memory_format=torch.channels_last),
            F.max_pool2d(x, 2, return_indices=True), F.local_response_norm(x, 2), F.one_hot(torch.tensor([0, 2], device=device)), F.gumbel_softmax(x, hard=True))  # fmt: skip
