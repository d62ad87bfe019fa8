"""What NVIDIA's libraries and CUB ask of the allocator for one call each: recurrent layers, batch norm, CTC,
transforms, linear algebra, sparse products, sorting. Prints JSON: by call the bytes of each of its requests in order.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Call = Callable[[], Any]
HALF, FLOAT = torch.float16, torch.float32


def recurrent() -> Iterator[tuple[str, Call]]:
    """A training step of each kind of cell; one number changed at a time."""
    base = {"batch": 20, "steps": 35, "inputs": 200, "hidden": 256, "layers": 1, "directions": 1, "dropout": 0.0}
    changes: list[dict[str, Any]] = [
        {}, {"batch": 32}, {"steps": 70}, {"inputs": 256}, {"hidden": 512}, {"hidden": 320}, {"layers": 2},
        {"layers": 3},
        {"directions": 2}, {"layers": 2, "directions": 2}, {"layers": 2, "dropout": 0.5}, {"proj": 128},
        {"batch": 1}, {"steps": 1}, {"hidden": 1024, "inputs": 1024, "batch": 64},
    ]  # fmt: skip
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for dtype in (FLOAT, HALF):
            for change in changes:
                if "proj" in change and kind is not nn.LSTM:
                    continue
                sizes = base | change
                yield (
                    f"{kind.__name__} {str(dtype)[6:]} {json.dumps(sizes)}",
                    lambda k=kind, s=sizes, d=dtype: _step(k, s, d),
                )


def _step(kind: Any, sizes: dict[str, Any], dtype: torch.dtype) -> None:
    layer = kind(
        sizes["inputs"], sizes["hidden"], sizes["layers"], bidirectional=sizes["directions"] == 2,
        dropout=sizes["dropout"], **({"proj_size": sizes["proj"]} if "proj" in sizes else {}),
    ).to("cuda", dtype)  # fmt: skip
    mark()
    out, _ = layer(torch.empty(sizes["steps"], sizes["batch"], sizes["inputs"], device="cuda", dtype=dtype))
    mark()
    out.sum().backward()


def norms() -> Iterator[tuple[str, Call]]:
    """A step of batch norm, in both layouts."""
    for shape in ((64, 64, 112, 112), (64, 256, 56, 56), (32, 2048, 7, 7), (8, 3, 32, 32)):
        for layout in (torch.contiguous_format, torch.channels_last):
            for dtype in (FLOAT, HALF):
                yield f"batch_norm {shape} {layout} {dtype}", lambda s=shape, m=layout, d=dtype: _norm(s, m, d)


def _norm(shape: tuple[int, ...], layout: torch.memory_format, dtype: torch.dtype) -> None:
    layer = nn.BatchNorm2d(shape[1]).cuda()
    x = torch.empty(shape, device="cuda", dtype=dtype).to(memory_format=layout).requires_grad_()
    mark()
    y = layer(x)
    mark()
    y.sum().backward()


def ctc() -> Iterator[tuple[str, Call]]:
    """cuDNN's CTC where its conditions hold, PyTorch's own elsewhere."""
    for steps, batch, letters, length in ((50, 16, 20, 30), (200, 32, 80, 100)):

        def call(t: int = steps, n: int = batch, c: int = letters, s: int = length) -> None:
            x = torch.zeros(t, n, c, device="cuda").log_softmax(2).requires_grad_()
            words = torch.randint(1, c, (n * s,), dtype=torch.int32)
            full, lengths = torch.full((n,), t, dtype=torch.int32), torch.full((n,), s, dtype=torch.int32)
            functional.ctc_loss(x, words, full, lengths).backward()

        yield f"ctc {steps} {batch} {letters} {length}", call


def transforms() -> Iterator[tuple[str, Call]]:
    """Fourier transforms of one and two dimensions."""
    for shape in ((16, 1024), (16, 1000), (16, 1009), (64, 65536), (4, 1 << 20), (8, 12289), (2, 1000003)):
        yield f"fft {shape}", lambda s=shape: torch.fft.fft(torch.zeros(s, device="cuda", dtype=torch.complex64))
        yield f"rfft {shape}", lambda s=shape: torch.fft.rfft(torch.zeros(s, device="cuda"))
        yield f"irfft {shape}", lambda s=shape: torch.fft.irfft(torch.zeros(s, device="cuda", dtype=torch.complex64))
    for shape in ((8, 256, 256), (8, 250, 250), (2, 1024, 1024), (4, 3, 224, 224), (2, 64, 64, 64)):
        yield (
            f"fftn {shape}",
            lambda s=shape: torch.fft.fftn(torch.zeros(s, device="cuda"), dim=tuple(range(1, len(s)))),
        )
        yield f"rfft2 {shape}", lambda s=shape: torch.fft.rfft2(torch.zeros(s, device="cuda"))
    yield (
        "stft",
        lambda: torch.stft(
            torch.zeros(8, 160000, device="cuda"), 400, 160, window=torch.ones(400, device="cuda"), return_complex=True
        ),
    )


def algebra() -> Iterator[tuple[str, Call]]:
    """Factorizations and solvers of one matrix and of many."""
    calls: dict[str, Callable[[Tensor], Any]] = {
        "cholesky": torch.linalg.cholesky, "lu_factor": torch.linalg.lu_factor, "qr": torch.linalg.qr,
        "svd": torch.linalg.svd, "svdvals": torch.linalg.svdvals, "eigh": torch.linalg.eigh,
        "eigvalsh": torch.linalg.eigvalsh, "inv": torch.linalg.inv, "det": torch.linalg.det,
        "solve": lambda a: torch.linalg.solve(a, a), "lstsq": lambda a: torch.linalg.lstsq(a, a),
        "pinv": torch.linalg.pinv, "matrix_exp": torch.linalg.matrix_exp, "eig": torch.linalg.eig,
        "cholesky_inverse": torch.cholesky_inverse, "ldl_factor": torch.linalg.ldl_factor,
        "solve_triangular": lambda a: torch.linalg.solve_triangular(a, a, upper=True),
    }  # fmt: skip
    for shape in ((64, 64), (512, 512), (1500, 1500), (16, 32, 32), (8, 256, 256)):
        for name, call in calls.items():
            yield f"{name} {shape}", lambda s=shape, c=call: c(_positive(s))


def _positive(shape: tuple[int, ...]) -> Tensor:
    matrix = torch.eye(shape[-1], device="cuda").expand(shape).contiguous()
    matrix += torch.linspace(0, 1, shape[-1], device="cuda")[:, None] * torch.eye(shape[-1], device="cuda")
    mark()
    return matrix


def sparse() -> Iterator[tuple[str, Call]]:
    """Products of a sparse matrix by a dense one, a vector and another sparse one."""
    for side, of_each in ((1024, 8), (20000, 16)):

        def make(n: int = side, k: int = of_each) -> Tensor:
            rows = torch.arange(n).repeat_interleave(k)
            columns = (rows * 7 + torch.arange(n * k)) % n
            found = torch.sparse_coo_tensor(torch.stack([rows, columns]), torch.ones(n * k), (n, n)).coalesce()
            found = found.to_sparse_csr().cuda()
            mark()
            return found

        yield f"csr mm {side}", lambda m=make, n=side: m() @ torch.ones(n, 64, device="cuda")
        yield f"csr mv {side}", lambda m=make, n=side: m() @ torch.ones(n, device="cuda")
        yield f"csr csr {side}", lambda m=make: _square(m())
        yield (
            f"coo mm {side}",
            lambda m=make, n=side: torch.sparse.mm(m().to_sparse_coo(), torch.ones(n, 64, device="cuda")),
        )
        yield (
            f"sampled {side}",
            lambda m=make, n=side: torch.sparse.sampled_addmm(
                m(), torch.ones(n, 32, device="cuda"), torch.ones(32, n, device="cuda")
            ),
        )


def _square(matrix: Tensor) -> Tensor:
    return matrix @ matrix


def sorting() -> Iterator[tuple[str, Call]]:
    """What CUB and Thrust work in, by how many."""
    for size in (1000, 5000, 100_000, 3_000_000, 50_000_000):
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            name = f"{size} {str(dtype)[6:]}"

            def some(n: int = size, d: torch.dtype = dtype) -> Tensor:
                x = (torch.arange(n, device="cuda") % 977).to(d)
                mark()
                return x

            yield f"sort {name}", lambda s=some: s().sort()
            yield f"topk {name}", lambda s=some: s().topk(50)
            yield f"unique {name}", lambda s=some: s().unique()
            yield f"nonzero {name}", lambda s=some: s().nonzero()
            yield f"masked {name}", lambda s=some: _masked(s())
            yield f"cumsum {name}", lambda s=some: s().cumsum(0)
            yield f"sum {name}", lambda s=some: s().sum()
            yield f"argmax {name}", lambda s=some: s().argmax()
        yield f"randperm {size}", lambda n=size: torch.randperm(n, device="cuda")
        yield f"bincount {size}", lambda n=size: torch.bincount(torch.arange(n, device="cuda") % 1000)
        yield f"embedding backward {size}", lambda n=size: _embed(min(n, 3_000_000))
    for shape in ((64, 50257), (8, 151936), (4096, 128), (3, 1_000_000)):
        yield f"sort rows {shape}", lambda s=shape: torch.zeros(s, device="cuda").sort(dim=-1)
        yield f"topk rows {shape}", lambda s=shape: torch.zeros(s, device="cuda").topk(50)
        yield f"multinomial {shape}", lambda s=shape: torch.ones(s, device="cuda").multinomial(1)
        yield f"cumsum rows {shape}", lambda s=shape: torch.ones(s, device="cuda").cumsum(-1)


def _masked(x: Tensor) -> Tensor:
    return x[x > 3]


def _embed(n: int) -> None:
    table = nn.Embedding(1000, 16, device="cuda")
    words = torch.arange(n, device="cuda") % 1000
    mark()
    table(words).sum().backward()


def products() -> Iterator[tuple[str, Call]]:
    """Products by cuBLAS and cuBLASLt, attention and convolutions, whose workspaces are theirs to choose."""
    for dtype in (FLOAT, HALF, torch.bfloat16):
        yield f"linear gelu {dtype}", lambda d=dtype: functional.gelu(
            functional.linear(*(torch.zeros(1024, 1024, device="cuda", dtype=d) for _ in range(2)),
                              torch.zeros(1024, device="cuda", dtype=d)), approximate="tanh")  # fmt: skip
        for dims, shape in ((1, (16, 64, 4000)), (2, (16, 64, 56, 56)), (3, (2, 32, 16, 56, 56))):
            for kernel, stride, groups in ((3, 1, 1), (1, 1, 1), (7, 2, 1), (3, 1, 32)):

                def call(d: Any = dtype, n: int = dims, s: Any = shape, k: Any = (kernel, stride, groups)) -> None:
                    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n - 1](
                        s[1], 2 * s[1], k[0], k[1], k[0] // 2, groups=k[2]
                    ).to("cuda", d)
                    x = torch.zeros(s, device="cuda", dtype=d, requires_grad=True)
                    mark()
                    y = conv(x)
                    mark()
                    y.sum().backward()

                yield f"conv{dims}d {str(dtype)[6:]} {shape} {kernel} {stride} {groups}", call
    for heads, length, width in ((12, 1024, 64), (32, 2048, 128), (8, 333, 80), (16, 1, 64)):
        for causal in (False, True):

            def attend(n: int = heads, s: int = length, d: int = width, c: bool = causal) -> None:
                q = torch.zeros(4, n, s, d, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                mark()
                y = functional.scaled_dot_product_attention(q, q, q, is_causal=c)
                mark()
                y.sum().backward()

            yield f"attention {heads} {length} {width} {causal}", attend


def mark() -> None:
    """Sets what follows apart in a call's requests."""
    groups.append(len(events()))


def events() -> list[dict[str, Any]]:
    """All events of the allocator."""
    traces: list[list[dict[str, Any]]] = torch.cuda.memory._snapshot()["device_traces"]
    return traces[0]


groups: list[int] = []


def main() -> None:
    """Each call once, from an empty cache."""
    torch.cuda.memory._record_memory_history(context=None, max_entries=1 << 20)
    found: dict[str, Any] = {}
    for calls in (recurrent, norms, ctc, transforms, algebra, sparse, sorting, products):
        for name, call in calls():
            torch.cuda.memory._record_memory_history(enabled=None)
            torch.cuda.memory._record_memory_history(context=None, max_entries=1 << 16)
            groups.clear()
            try:
                call()
                all_events = events()
                cuts = [*groups, len(all_events)]
                found[name] = [
                    [event["size"] for event in all_events[before:after] if event["action"] == "alloc"]
                    for before, after in zip([0, *cuts], cuts, strict=False)
                ]
            except (RuntimeError, ValueError) as error:
                found[name] = str(error)[:100]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
