"""What small nets hold: workspaces, intermediates, norms, optimizers."""

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vramtui.estimators.traced.experiments.marks import Marks

WIDTH, BATCH = 1024, 256


class ManualNorm(nn.Module):
    """A layer norm in single operators, each of which keeps what its backward needs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias


def linear() -> None:
    """One linear layer, forward and backward; what is left at the end are cuBLAS workspaces, one for each thread."""
    marks = Marks()
    model = nn.Linear(256, 250).to("cuda")
    marks.mark("model")
    x = torch.randn(1, 256, device="cuda")
    marks.mark("input")
    y = model(x)
    marks.mark("forward")
    y.sum().backward()
    marks.mark("backward")
    del model, x, y
    marks.mark("deletion")
    torch._C._cuda_clearCublasWorkspaces()
    marks.mark("workspaces cleared")
    marks.write()


def autograd() -> None:
    """What the graph of an expression keeps besides its result: nothing that is a leaf, each factor that is not."""
    x, first, second = (torch.randn(64, 64, device="cuda") for _ in range(3))
    first.requires_grad_()
    second.requires_grad_()
    torch.mm(x, x)  # the first product makes the workspace, before any mark
    marks = Marks()
    marks.mark("leaves and workspace")
    expressions: tuple[tuple[str, Callable[[], torch.Tensor]], ...] = (
        ("x @ w", lambda: x @ first),
        ("x + w", lambda: x + first),
        ("(x * 2) @ w", lambda: (x * 2) @ first),
        ("(((x + 2) @ w1) + 3) * w2", lambda: (((x + 2) @ first) + 3) * second),
    )
    for label, expression in expressions:
        result = expression()
        marks.mark(label)
        del result
    marks.write()


def _mlp() -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers).to("cuda")


def _small_mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 200), nn.Sigmoid()).to("cuda")


def small_mlp_training() -> None:
    """Two linear layers on a batch of 5: forward keeps what backward needs, backward makes the gradients."""
    marks = Marks()
    model = _small_mlp()
    marks.mark("model")
    x = torch.randn(5, 200, device="cuda")
    marks.mark("input")
    y = model(x)
    marks.mark("forward")
    y.sum().backward()
    marks.mark("backward")
    marks.write()


def small_mlp_inference() -> None:
    """A small MLP's forward pass without a graph."""
    marks = Marks()
    with torch.inference_mode():
        model = _small_mlp()
        marks.mark("model")
        x = torch.randn(5, 200, device="cuda")
        marks.mark("input")
        y = model(x)
        marks.mark("forward")
    del y
    marks.write()


def _through(marks: Marks, model: nn.Sequential) -> None:
    marks.mark("model")
    x = torch.randn(BATCH, WIDTH, device="cuda")
    marks.mark("input")
    for number, layer in enumerate(model):
        x = layer(x)
        marks.mark(f"{number} {type(layer).__name__}")
    del x
    marks.mark("output deleted")
    marks.write()


def mlp_training() -> None:
    """Each layer's output is kept for backward."""
    _through(Marks(), _mlp())


def mlp_inference() -> None:
    """An MLP's inference: nothing is saved, so that only two outputs are ever alive."""
    marks = Marks()
    with torch.inference_mode():
        _through(marks, _mlp())


def _normed(norm: nn.Module) -> None:
    marks = Marks()
    norm = norm.to("cuda")
    marks.mark("norm")
    x = torch.randn(BATCH, WIDTH, device="cuda", requires_grad=True)
    marks.mark("input")
    y = norm(x)
    marks.mark("forward")
    y.backward(torch.ones_like(y))
    marks.mark("backward")
    del x, y
    marks.mark("deletion")
    marks.write()


def layernorm_fused() -> None:
    """One kernel, which keeps a mean and a deviation for each row."""
    _normed(nn.LayerNorm(WIDTH))


def layernorm_manual() -> None:
    """A layer norm written as nine operators."""
    _normed(ManualNorm(WIDTH))


def small_layernorm() -> None:
    """A layer norm of ten numbers, with one trained factor and no bias: what is left when it is done."""
    marks = Marks()
    w = torch.ones(10, device="cuda", requires_grad=True)
    marks.mark("factor")
    x = torch.randn(10, device="cuda")
    marks.mark("input")
    y = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) * w
    marks.mark("forward")
    del y
    marks.write()


def _small_steps(kind: type[torch.optim.Optimizer]) -> None:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"  # read at the first product; the figures are those of tensors alone
    marks = Marks()
    model = nn.Linear(256, 250).to("cuda")
    marks.mark("model")
    optimizer = kind(model.parameters(), lr=1e-3)  # type: ignore[call-arg] # as below
    x = torch.randn(100, 256, device="cuda")
    marks.mark("input")
    for step in range(4):
        y = model(x)
        marks.mark(f"forward {step}")
        y.sum().backward()
        marks.mark(f"backward {step}")
        optimizer.step()
        del y
        marks.mark(f"step {step}")
        optimizer.zero_grad()
        marks.mark(f"zero_grad {step}")
    marks.write()


def small_steps_sgd() -> None:
    """Plain SGD, and no workspace."""
    _small_steps(torch.optim.SGD)


def small_steps_adam() -> None:
    """Adam, and no workspace."""
    _small_steps(torch.optim.Adam)


def _trained(kind: type[torch.optim.Optimizer]) -> None:
    marks = Marks()
    model = nn.Sequential(*_mlp(), nn.Linear(WIDTH, 10).to("cuda"))
    marks.mark("model")
    optimizer = kind(model.parameters(), lr=1e-3)  # type: ignore[call-arg] # every optimizer that is used here has it
    marks.mark("optimizer")
    for step in range(2):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        y = torch.randint(0, 10, (BATCH,), device="cuda")
        marks.mark(f"input {step}")
        loss = nn.functional.cross_entropy(model(x), y)
        marks.mark(f"forward {step}")
        loss.backward()
        marks.mark(f"backward {step}")
        optimizer.step()
        marks.mark(f"step {step}")
        optimizer.zero_grad()
        marks.mark(f"zero_grad {step}")
    marks.write()


def optimizer_sgd() -> None:
    """Plain SGD keeps nothing of its own."""
    _trained(torch.optim.SGD)


def optimizer_adam() -> None:
    """Adam makes two numbers for each weight in its first step, and keeps them."""
    _trained(torch.optim.Adam)
