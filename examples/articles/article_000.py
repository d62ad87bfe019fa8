"""How PyTorch allocates GPU memory: small experiments, printed with PyTorch's own counters, in bytes.

With a GPU: `python article_000.py`. Without one: `vramtui dry-run --gpu A100-80GB article_000.py`.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

allocated, reserved = torch.cuda.memory_allocated, torch.cuda.memory_reserved


def clear() -> None:
    """Free the cuBLAS workspaces, which empty_cache leaves allocated."""
    torch._C._cuda_clearCublasWorkspaces()
    print("workspaces cleared:", allocated())


def caching() -> None:
    """A deleted tensor is not allocated any more; its segment stays reserved until empty_cache."""
    print("caching, start: reserved", reserved(), "allocated", allocated())
    x = torch.randn(1024, device="cuda")
    print("caching, 1024 numbers: reserved", reserved(), "allocated", allocated())
    del x
    print("caching, deleted: reserved", reserved(), "allocated", allocated())
    torch.cuda.empty_cache()
    print("caching, empty_cache: reserved", reserved(), "allocated", allocated())


def dtypes() -> None:
    """The dtype decides how many bytes a number takes."""
    for name in ("float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "uint16"):
        x = torch.ones(1 << 20, dtype=getattr(torch, name), device="cuda")
        print("1048576 numbers in", name, "take", allocated())
        del x


def blocks() -> None:
    """Every tensor takes whole blocks of 512 bytes."""
    for size in (1, 512, 513, 1024, 1025, 3200):
        x = torch.empty(size, dtype=torch.uint8, device="cuda")
        print(size, "bytes take", allocated(), "#" * (allocated() // 512))
        del x


def linear() -> None:
    """The first matrix product of each thread makes a cuBLAS workspace, which stays when all else is deleted."""
    weight, bias = (torch.randn(shape, device="cuda", requires_grad=True) for shape in ((250, 256), (250,)))
    print("linear, model:", allocated())
    x = torch.randn(1, 256, device="cuda")
    print("linear, input:", allocated())
    y = nn.functional.linear(x, weight, bias)
    print("linear, forward:", allocated())
    y.sum().backward()
    print("linear, backward:", allocated())
    tensors = {"gradient of weight": weight.grad, "gradient of bias": bias.grad}
    weight.grad = bias.grad = None
    tensors |= {"y": y, "x": x, "weight": weight, "bias": bias}
    del weight, bias, x, y
    for name in tuple(tensors):
        before = allocated()
        del tensors[name]
        print("linear,", name, "took", before - allocated())
    print("linear, all deleted:", before := allocated())
    model = nn.Linear(256, 250, device="cuda")
    x = torch.randn(1, 256, device="cuda")
    y = model(x)
    print("linear, forward without the workspaces:", allocated() - before)
    del y


def forward_only() -> None:
    """A forward pass alone makes one workspace."""
    nn.Linear(256, 250, device="cuda")(torch.randn(1, 256, device="cuda"))
    print("linear, deleted after a forward pass alone:", allocated())


def autograd() -> None:
    """The graph keeps what a derivative needs: leaves exist anyway, computed factors are kept for it."""
    x, w1, w2 = (torch.randn(64, 64, device="cuda", requires_grad=grad) for grad in (False, True, True))
    torch.mm(x, x)  # makes the workspace
    before = allocated()
    expressions: dict[str, Callable[[], Tensor]] = {
        "x @ w": lambda: x @ w1,
        "x + w": lambda: x + w1,
        "(x * 2) @ w": lambda: (x * 2) @ w1,
        "(((x + 2) @ w1) + 3) * w2": lambda: (((x + 2) @ w1) + 3) * w2,
    }
    for name, compute in expressions.items():
        result = compute()
        print("autograd,", name, "makes it", allocated(), "and adds", allocated() - before)
        del result


def mlp(count: int, *, inference: bool) -> None:
    """Training keeps what the backward pass needs; inference mode keeps only the last result."""
    name = f"mlp, {count} in inference mode," if inference else f"mlp, {count} in training,"
    parts = [(nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 200), nn.Sigmoid()) for _ in range(count)]
    with torch.inference_mode(inference):
        model = nn.Sequential(*(layer for part in parts for layer in part)).to("cuda")
        x = torch.randn(5, 200, device="cuda")
        y = model(x)
        print(name, "forward:", allocated())
    if not inference:
        loss = y.sum()
        print(name, "forward and sum:", allocated())
        loss.backward()
        del loss
        print(name, "backward:", allocated())


def layer_norm() -> None:
    """Single operators keep whole tensors; the kernel keeps two numbers for each row."""
    w = torch.ones(10, device="cuda", requires_grad=True)
    x = torch.randn(10, device="cuda")
    y = (x - x.mean()) / (x.std() + 1e-6) * w
    print("layer norm of ten numbers:", allocated())
    del w, x, y
    norm, x = nn.LayerNorm(1024, device="cuda"), torch.randn(256, 1024, device="cuda", requires_grad=True)
    before = allocated()
    y = norm(x)
    print("nn.LayerNorm:", allocated(), "adds", allocated() - before)
    del y
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    y = (x - mean) / torch.sqrt(variance + 1e-5) * norm.weight + norm.bias
    del mean, variance
    print("layer norm spelled out:", allocated(), "adds", allocated() - before)
    del y


def training(kind: type[torch.optim.Adam | torch.optim.SGD], steps: int) -> None:
    """Compare each event of some steps with the sum of the tensors, in blocks; workspaces are left out."""
    nn.Linear(8, 8, device="cuda")(torch.randn(8, 8, device="cuda")).sum().backward()  # makes both workspaces
    before = allocated()
    model = nn.Linear(256, 250, device="cuda")
    optimizer = kind(model.parameters(), lr=1e-3)
    x: Tensor | None = None
    y: Tensor | None = None

    def show(event: str) -> None:
        groups: dict[str, Iterable[Tensor | None]] = {
            "weights": model.parameters(),
            "gradients": [weight.grad for weight in model.parameters()],
            "optimizer": [t for state in optimizer.state.values() for t in state.values() if t.is_cuda],
            "input": [x],
            "output": [y],
        }
        sizes = {name: sum(-(-t.nbytes // 512) * 512 for t in group if t is not None) for name, group in groups.items()}
        parts = " + ".join(f"{name} {size}" for name, size in sizes.items() if size)
        print(f"{kind.__name__}, {event}: allocated {allocated() - before}, expected {sum(sizes.values())} = {parts}")

    show("model")
    x = torch.randn(100, 256, device="cuda")
    show("input")
    for step in range(1, steps + 1):
        y = model(x)
        show(f"forward {step}")
        y.sum().backward()
        show(f"backward {step}")
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        print(f"{kind.__name__}, peak within step {step}:", torch.cuda.max_memory_allocated() - before)
        y = None
        show(f"step {step}")
        optimizer.zero_grad()
        show(f"zero_grad {step}")


if __name__ == "__main__":
    caching()
    dtypes()
    blocks()
    linear()
    clear()
    forward_only()
    clear()
    autograd()
    clear()
    mlp(1, inference=False)
    clear()
    mlp(1, inference=True)
    clear()
    mlp(3, inference=False)
    clear()
    layer_norm()
    training(torch.optim.Adam, steps=2)
    training(torch.optim.SGD, steps=1)
