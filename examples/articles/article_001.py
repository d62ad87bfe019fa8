"""ResNet-50 layer by layer: parameters, responses and lowering; and what activations in place save.

With a GPU: `python article_001.py`. Without one: `vramtui dry-run --gpu A100-80GB article_001.py`.
"""

import torch
from torch import Tensor, nn

BATCH = 32
FLOAT = 4


def convolution(wide: int, out: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    """A convolution without bias, and its batch norm."""
    return nn.Sequential(nn.Conv2d(wide, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out))


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut (He et al. 2015); the stride is on the first."""

    def __init__(self, wide: int, narrow: int, stride: int, *, inplace: bool) -> None:
        super().__init__()
        first, second = convolution(wide, narrow, 1, stride), convolution(narrow, narrow, 3)
        last = convolution(narrow, 4 * narrow)
        self.body = nn.Sequential(first, nn.ReLU(inplace), second, nn.ReLU(inplace), last)
        self.shortcut = convolution(wide, 4 * narrow, 1, stride) if wide != 4 * narrow else nn.Identity()
        self.sum, self.relu = nn.Identity(), nn.ReLU(inplace)

    def forward(self, x: Tensor) -> Tensor:
        """Add the result of the three convolutions to the shortcut's."""
        y: Tensor = self.relu(self.sum(self.body(x) + self.shortcut(x)))
        return y


def resnet50(*, inplace: bool = False) -> nn.Sequential:
    """Build ResNet-50."""
    layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(inplace), nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        narrow = 64 << stage
        for block in range(count):
            layers.append(Bottleneck(wide, narrow, 2 if stage and not block else 1, inplace=inplace))
            wide = 4 * narrow
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 1000))


def count_layers() -> None:
    """Count what convolutions, pooling and sums put out, and what lowering a convolution to a product needs."""
    model = resnet50().to("cuda")
    shortcuts = {id(layer) for name, layer in model.named_modules() if name.endswith("shortcut.0")}
    count = {"responses": 0, "outputs x K²": 0, "im2col": 0}

    def seen(layer: nn.Module, _: tuple[Tensor, ...], y: Tensor) -> None:
        count["responses"] += y[0].numel()
        if isinstance(layer, nn.Conv2d):
            kernel = layer.kernel_size[0] ** 2
            count["outputs x K²"] += 0 if id(layer) in shortcuts else y[0].numel() * kernel
            count["im2col"] += layer.in_channels * kernel * y.shape[2] * y.shape[3]

    for name, layer in model.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.MaxPool2d)) or name.endswith(".sum"):
            layer.register_forward_hook(seen)
    parameters = sum(weight.numel() for weight in model.parameters())
    with torch.no_grad():
        model(torch.zeros(1, 3, 224, 224, device="cuda"))
    print(f"ResNet-50: {parameters} parameters take {FLOAT * parameters} bytes, {FLOAT * parameters / 2**20:.1f} MiB")
    for name, numbers in count.items():
        one = FLOAT * numbers
        print(f"{name}: {numbers} numbers, {one / 1e6:.1f} MB; of {BATCH} images {BATCH * one / 1e9:.2f} GB")
    before = torch.cuda.memory_allocated()
    y = model(torch.zeros(BATCH, 3, 224, 224, device="cuda"))
    print(f"PyTorch keeps {torch.cuda.memory_allocated() - before} bytes of {BATCH} images for the backward pass")
    del y


def round_numbers() -> None:
    """The same from round numbers: 26 M parameters and 16 M responses."""
    parameters, responses = 26_000_000, 16_000_000
    megabytes = FLOAT * responses / 1e6
    print(f"26 M x {FLOAT} bytes = {FLOAT * parameters / 2**20:.1f} MiB, 16 M x {FLOAT} bytes = {megabytes:.1f} MB")
    print(f"{BATCH} x 16 M x {FLOAT} bytes = {BATCH * FLOAT * responses / 1e9:.2f} GB")


def relu() -> None:
    """One activation: its result is a new tensor, or takes the place of its input."""
    for inplace in (True, False):
        x = torch.zeros(2048, 2048, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        nn.functional.relu(x, inplace)
        print("ReLU", "in place" if inplace else "anew", "peaks at", torch.cuda.max_memory_allocated())
        del x


def peak_of_training(name: str, model: nn.Module, x: Tensor) -> None:
    """Print the peak of one forward and backward pass."""
    torch.cuda.reset_peak_memory_stats()
    model(x).sum().backward()
    print(f"training {name} peaks at {torch.cuda.max_memory_allocated()}")
    torch._C._cuda_clearCublasWorkspaces()


if __name__ == "__main__":
    round_numbers()
    count_layers()
    torch._C._cuda_clearCublasWorkspaces()
    relu()
    for inplace in (True, False):
        place = "in place" if inplace else "anew"
        layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU(inplace))]
        peak_of_training(f"8 x Linear and ReLU {place}", nn.Sequential(*layers).cuda(), torch.zeros(4096, 1024).cuda())
        layers.clear()
        peak_of_training(f"ResNet-50 {place}", resnet50(inplace=inplace).cuda(), torch.zeros(16, 3, 224, 224).cuda())
