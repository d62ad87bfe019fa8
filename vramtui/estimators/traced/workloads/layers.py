"""Lists of layers and residual nets as modules of torch.nn."""

from collections.abc import Callable
from math import prod
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vramtui.core.base.errors import UserError
from vramtui.core.schema.layer_models import (
    Act,
    Conv2d,
    ConvNetModel,
    Dropout,
    Embedding,
    Flatten,
    Layer,
    Linear,
    Norm,
    Pool,
    Recurrent,
    Repeat,
    SelfAttention,
    SequentialModel,
)
from vramtui.estimators.traced.modules.attention import MultiHeadAttention
from vramtui.estimators.traced.modules.norm import ManualNorm
from vramtui.estimators.traced.modules.recurrent import Recurring

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "leaky_relu": nn.LeakyReLU,
}
_INPLACE = ("relu", "silu", "leaky_relu")


class Stretch(nn.Module):
    """Some layers in a row; with `residual` what goes in is added, with `again` they are run once more in backward."""

    def __init__(self, layers: list[nn.Module], *, residual: bool, again: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.residual, self.again = residual, again

    def forward(self, x: Tensor) -> Tensor:
        """Each layer in turn."""
        out = checkpoint(self._run, x, use_reentrant=False) if self.again and self.training else self._run(x)
        assert isinstance(out, Tensor)
        return out

    def _run(self, x: Tensor) -> Tensor:
        out = self.layers(x)
        assert isinstance(out, Tensor)
        return x + out if self.residual else out


class Builder:
    """Makes modules one after another; `shape` is a sample's shape behind the last one."""

    def __init__(self, shape: tuple[int, ...], *, eager: bool, again: bool) -> None:
        self.shape = shape
        self._eager, self._again = eager, again

    def all(self, layers: tuple[Layer | Repeat, ...]) -> nn.Sequential:
        """Every layer of a model.

        Raises:
            UserError: a layer does not take what comes in.
        """
        modules: list[nn.Module] = []
        for layer in layers:
            if isinstance(layer, Repeat):
                for _ in range(layer.times):
                    inner = [self.one(part) for part in layer.layers]
                    modules.append(Stretch(inner, residual=layer.residual, again=self._again))
            else:
                modules.append(self.one(layer))
        return nn.Sequential(*modules)

    def one(self, layer: Layer) -> nn.Module:
        """One layer; `shape` moves on behind it."""
        makers: dict[type, Callable[[Any], nn.Module]] = {
            Linear: self._linear,
            Conv2d: self._conv,
            Pool: self._pool,
            Norm: self._norm,
            Act: _activation,
            Dropout: lambda dropout: nn.Dropout(dropout.probability),
            Flatten: self._flatten,
            Embedding: self._embedding,
            SelfAttention: self._attention,
            Recurrent: self._recurrent,
        }
        return makers[type(layer)](layer)

    def _linear(self, layer: Linear) -> nn.Module:
        before, self.shape = self.shape[-1], (*self.shape[:-1], layer.out_features)
        return nn.Linear(before, layer.out_features, bias=layer.bias)

    def _flatten(self, _layer: Flatten) -> nn.Module:
        self.shape = (prod(self.shape),)
        return nn.Flatten()

    def _embedding(self, layer: Embedding) -> nn.Module:
        self.shape = (*self.shape, layer.embedding_dim)
        return nn.Embedding(layer.num_embeddings, layer.embedding_dim)

    def _attention(self, layer: SelfAttention) -> nn.Module:
        if len(self.shape) != 2 or self.shape[1] % layer.num_heads:
            raise UserError(f"model.layers: attention of {layer.num_heads} heads does not go with {self.shape}")
        return MultiHeadAttention(
            self.shape[1], layer.num_heads, bias=layer.bias, causal=layer.causal, eager=self._eager
        )

    def _recurrent(self, layer: Recurrent) -> nn.Module:
        tokens, width = self.shape
        out = (2 if layer.bidirectional else 1) * (layer.proj_size or layer.hidden_size)
        self.shape = (out,) if layer.output == "last" else (tokens, out)
        return Recurring(width, layer)

    def _conv(self, layer: Conv2d) -> nn.Module:
        channels = self._image()[0]
        self._slide(layer.kernel_size, layer.stride, layer.padding, layer.out_channels)
        return nn.Conv2d(
            channels,
            layer.out_channels,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            groups=layer.groups,
            bias=layer.bias,
        )

    def _pool(self, layer: Pool) -> nn.Module:
        channels = self._image()[0]
        if layer.pool == "global":
            self.shape = (channels, 1, 1)
            return nn.AdaptiveAvgPool2d(1)
        stride = layer.stride or layer.kernel_size
        self._slide(layer.kernel_size, stride, layer.padding, channels)
        kind = nn.MaxPool2d if layer.pool == "max" else nn.AvgPool2d
        return kind(layer.kernel_size, stride, layer.padding)

    def _norm(self, layer: Norm) -> nn.Module:
        if layer.norm == "batch":
            return nn.BatchNorm2d(self.shape[0]) if len(self.shape) == 3 else nn.BatchNorm1d(self.shape[0])
        if layer.norm == "group":
            return nn.GroupNorm(layer.groups, self.shape[0])
        width = self.shape[-1]
        if layer.norm == "manual":
            return ManualNorm(width)
        return nn.LayerNorm(width) if layer.norm == "layer" else nn.RMSNorm(width)

    def _image(self) -> tuple[int, int, int]:
        if len(self.shape) != 3:
            raise UserError(f"model.layers: a layer for (channels, height, width) meets the shape {self.shape}")
        return self.shape[0], self.shape[1], self.shape[2]

    def _slide(self, kernel: int, stride: int, padding: int, channels: int) -> None:
        _, *sizes = self._image()
        height, width = ((size + 2 * padding - kernel) // stride + 1 for size in sizes)
        if min(height, width) < 1:
            raise UserError(
                f"model.layers: a kernel of {kernel} is larger than what is left of the image, {self.shape}"
            )
        self.shape = (channels, height, width)


def _activation(layer: Act) -> nn.Module:
    if layer.act == "softmax":
        return nn.Softmax(-1)
    kind = _ACTIVATIONS[layer.act]
    return kind(inplace=True) if layer.inplace and layer.act in _INPLACE else kind()


def build_layers(model: SequentialModel, *, eager: bool, again: bool) -> tuple[nn.Module, tuple[int, ...]]:
    """The model, and a sample's shape at its end."""
    builder = Builder(model.input_shape, eager=eager, again=again)
    return builder.all(model.layers), builder.shape


class Residual(nn.Module):
    """A residual block with batch norms; its activations write over their inputs where `inplace` says so."""

    def __init__(self, before: int, channels: int, stride: int, *, wide: int, inplace: bool) -> None:
        super().__init__()
        shapes = [(before, channels, 3, stride), (channels, channels, 3, 1)]
        if wide > 1:
            shapes = [(before, channels, 1, 1), (channels, channels, 3, stride), (channels, wide * channels, 1, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, size, step, size // 2, bias=False) for i, o, size, step in shapes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in shapes)
        self.act = nn.ReLU(inplace=inplace)
        self.shortcut: nn.Module | None = None
        if stride > 1 or before != wide * channels:
            conv = nn.Conv2d(before, wide * channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(wide * channels))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, before, h, w) to (batch, wide * channels, h / stride, w / stride)."""
        out, last = x, len(self.convs) - 1
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = conv(out)
            out = norm(out)
            if number < last:
                out = self.act(out)
        identity = x if self.shortcut is None else self.shortcut(x)  # alive until the end, as in torchvision's block
        out += identity
        out = self.act(out)
        assert isinstance(out, Tensor)
        return out


def build_convnet(model: ConvNetModel, *, again: bool) -> nn.Module:
    """A ResNet from its stages."""
    wide = 4 if model.block == "bottleneck" else 1
    channels = model.embedding_size
    modules: list[nn.Module] = [
        nn.Conv2d(model.num_channels, channels, 7, 2, 3, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=model.inplace),
        nn.MaxPool2d(3, 2, 1),
    ]
    for stage in model.stages:
        for block in range(stage.blocks):
            stride = stage.stride if block == 0 else 1
            residual = Residual(channels, stage.channels, stride, wide=wide, inplace=model.inplace)
            modules.append(Stretch([residual], residual=False, again=True) if again else residual)
            channels = wide * stage.channels
    return nn.Sequential(*modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, model.num_classes))
