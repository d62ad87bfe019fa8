"""A list of layers or a residual net of a preset's `[model]` table, as what it consists of.

What a layer weighs follows from what comes in: `LayerShapes` follows one sample's shape, without the batch, from the
input on. Shapes: (features), (tokens, width), (channels, height, width), with channels last (height, width, channels).
"""

from functools import lru_cache
from math import prod

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.schema import models as kinds
from vramtui.models import spec

Shape = tuple[int, ...]
Modules = tuple[spec.Module, ...]
# Products of a step: a gate each (torch.nn.modules.rnn of PyTorch 2.13).
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
# Norms over the channels of an image, and those that keep no numbers of their own.
OVER_CHANNELS, FIXED = {"batch", "group", "layer2d"}, {"frozen", "l2"}
CHANNELS_FIRST = "(channels, height, width)"
WIDER = {"basic": 1, "bottleneck": 4}


class LayerShapes:
    """Follows a sample's shape through layers."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.marked: dict[str, Shape] = {}

    def place(self, layer: kinds.Layer) -> Modules:
        """The modules of the next layer; the shape is what comes out of it from now on."""
        shape, modules = self.shape, Modules()
        match layer:
            case kinds.Linear():
                modules = (_linear(layer.out_features, shape[-1], bias=layer.bias),)
                shape = (*shape[:-1], layer.out_features)
            case kinds.Conv2d():
                channels, *sides = need_image(shape, "conv", CHANNELS_FIRST)
                if channels % layer.groups or layer.out_channels % layer.groups:
                    raise UserError(
                        f"model.layers: conv groups = {layer.groups} does not divide {channels} or {layer.out_channels}"
                    )
                conv = spec.ConvModule(
                    name="conv",
                    out_channels=layer.out_channels,
                    in_channels=channels // layer.groups,
                    kernel=(layer.kernel_size, layer.kernel_size),
                    bias=layer.bias,
                )
                modules, shape = (conv,), (layer.out_channels, *(_slid(side, layer, "conv") for side in sides))
            case kinds.Pool():
                channels, *sides = need_image(shape, "pooling", CHANNELS_FIRST)
                fixed = {"global": 1, "adaptive": layer.kernel_size}.get(layer.pool)
                shape = (channels, *(fixed or _slid(side, layer, "pooling") for side in sides))
            case kinds.Norm() if layer.norm in FIXED:
                need_image(shape, "norm", CHANNELS_FIRST)
            case kinds.Norm():
                size = shape[0] if layer.norm in OVER_CHANNELS else shape[-1]
                if layer.norm == "group" and size % layer.groups:
                    raise UserError(f"model.layers: norm groups = {layer.groups} does not divide {size} channels")
                style: kinds.NormStyle = "rmsnorm" if layer.norm == "rms" else "layernorm"
                modules = (spec.NormModule(name="norm", size=size, style=style),)
            case kinds.Scale():
                modules = (spec.NormModule(name="scale", size=shape[0] if len(shape) == 3 else shape[-1]),)
            case kinds.Flatten():
                shape = (prod(shape),)
            case kinds.Embedding():
                if len(shape) != 1:
                    raise UserError(f"model.layers: an embedding looks up (tokens,), and here the shape is {shape}")
                modules = (
                    spec.EmbeddingModule(name="embedding", rows=layer.num_embeddings, width=layer.embedding_dim),
                )
                shape = (shape[0], layer.embedding_dim)
            case kinds.SelfAttention():
                if len(shape) != 2 or shape[1] % layer.num_heads:
                    raise UserError(
                        f"model.layers: attention of {layer.num_heads} heads needs (tokens, width) that they divide, "
                        f"and here the shape is {shape}"
                    )
                modules = tuple(_linear(times * shape[1], shape[1], bias=layer.bias) for times in (3, 1))
            case kinds.WindowAttention():
                if len(shape) != 3 or shape[2] % layer.num_heads:
                    raise UserError(
                        f"model.layers: window attention of {layer.num_heads} heads needs (height, width, channels) "
                        f"that they divide, and here the shape is {shape}"
                    )
                rows = (2 * layer.window_size - 1) ** 2
                positions = spec.EmbeddingModule(name="position", rows=rows, width=layer.num_heads)
                modules = (positions, *(_linear(times * shape[2], shape[2], bias=True) for times in (3, 1)))
            case kinds.PatchMerging():
                height, width, channels = need_image(shape, "patch merging")
                merged = spec.NormModule(name="norm", size=4 * channels, style="layernorm")
                modules = (merged, _linear(2 * channels, 4 * channels, bias=False))
                shape = (-(-height // 2), -(-width // 2), 2 * channels)
            case kinds.Recurrent():
                module = recurrent_module(shape, layer)
                width = module.directions * module.output
                modules, shape = (module,), (shape[0], width) if layer.output == "sequence" else (width,)
            case kinds.Permute():
                need_image(shape, "permute")
                shape = (*shape[1:], shape[0]) if layer.channels == "last" else (shape[-1], *shape[:-1])
            case kinds.Upsample():
                need_image(shape, "upsampling")
                larger = self.of_mark(layer.like)[1:] if layer.like else tuple(layer.scale * one for one in shape[1:])
                shape = (shape[0], *larger)
            case kinds.Mark():
                self.marked[layer.name] = shape
            case kinds.Take():
                shape = self.of_mark(layer.name)
            case kinds.Join(how="concat"):
                parts = [*(self.of_mark(name) for name in layer.names), shape]
                if any(one[1:] != parts[0][1:] for one in parts):
                    raise UserError(f"model.layers: channels of {', '.join(map(str, parts))} cannot be joined")
                shape = (sum(one[0] for one in parts), *parts[0][1:])
            case kinds.Join():
                for other in [self.of_mark(name) for name in layer.names]:
                    full = max(shape, other, key=prod)
                    for one in (shape, other):
                        if any(here not in (1, most) for here, most in zip(one, full, strict=True)):
                            raise UserError(f"model.layers: what comes in as {shape} does not go with {other}")
                    shape = full
            case kinds.Regions():
                shape = (self.of_mark(layer.names[0])[0], layer.size, layer.size)
        self.shape = shape
        return modules

    def of_mark(self, name: str) -> Shape:
        """The shape of what was marked; raises UserError if nothing was."""
        if name not in self.marked:
            raise UserError(f"model.layers: nothing before it is marked {name!r}{nearest(name, self.marked)}")
        return self.marked[name]


def _linear(rows: int, columns: int, *, bias: bool) -> spec.LinearModule:
    return spec.LinearModule(name="linear", out_features=rows, in_features=columns, bias=bias)


def recurrent_module(shape: Shape, layer: kinds.Recurrent) -> spec.RecurrentModule:
    """A stack that reads a sequence; raises UserError if what comes in is none, or the projection is no LSTM's."""
    if len(shape) != 2:
        raise UserError(f"model.layers: a recurrent layer reads (tokens, width), and here the shape is {shape}")
    if layer.proj_size and (layer.cell != "lstm" or layer.proj_size >= layer.hidden_size):
        raise UserError("model.layers: proj_size is for an lstm, and smaller than its hidden_size")
    return spec.RecurrentModule(
        name="rnn",
        gates=GATES[layer.cell],
        inputs=shape[1],
        hidden=layer.hidden_size,
        output=layer.proj_size or layer.hidden_size,
        layers=layer.num_layers,
        directions=2 if layer.bidirectional else 1,
        bias=layer.bias,
    )


def need_image(shape: Shape, what: str, wanted: str = "three dimensions") -> tuple[int, int, int]:
    if len(shape) != 3:
        raise UserError(f"model.layers: {what} needs {wanted}, and here the shape is {shape}")
    return shape[0], shape[1], shape[2]


def _slid(side: int, layer: kinds.Conv2d | kinds.Pool, what: str) -> int:
    stride = layer.stride or layer.kernel_size
    if isinstance(layer, kinds.Conv2d) and layer.transposed:
        return max(1, (side - 1) * stride - 2 * layer.padding + layer.kernel_size)
    reach = 1 + (layer.kernel_size - 1) * (layer.dilation if isinstance(layer, kinds.Conv2d) else 1)
    room = side + 2 * layer.padding - reach
    out = (-(-room // stride) if isinstance(layer, kinds.Pool) and layer.ceil_mode else room // stride) + 1
    if out < 1:
        raise UserError(f"model.layers: {what} of size {layer.kernel_size} is larger than the {side} that come in")
    return out


@lru_cache(maxsize=64)  # as a decoder's
def layer_list_spec(model: kinds.SequentialModel) -> spec.ModelSpec:
    """Modules of a list of layers; weights that a layer shares with one before it stand once."""
    shapes, blocks = LayerShapes(model.input_shape), list[tuple[Modules, int]]()
    for layer in model.layers:
        left, layers = (layer.times, layer.layers) if isinstance(layer, kinds.Repeat) else (1, (layer,))
        while left:
            before = shapes.shape
            placed = ((one, shapes.place(one)) for one in layers)
            modules = [one for where, several in placed for one in several if getattr(where, "weights", "") != "shared"]
            count = left if shapes.shape == before else 1  # a round that keeps the shape is as all that follow
            blocks.append((tuple(modules), count))
            left -= count
    return _in_a_row(blocks)


def _in_a_row(stretches: list[tuple[Modules, int]]) -> spec.ModelSpec:
    blocks, start = [], 0
    for modules, times in stretches:
        blocks.append(spec.RepeatedBlock(modules=modules, start=start, stop=start + times))
        start += times
    return spec.ModelSpec(before=(), blocks=tuple(blocks), after=(), layers=start)


BATCH_NORM = kinds.Norm(norm="batch")


def stem_layers(model: kinds.ConvNetModel) -> tuple[kinds.Conv2d, kinds.Norm, kinds.Pool]:
    """Layers before the stages of a residual net; an activation follows the norm."""
    stem = kinds.Conv2d(out_channels=model.embedding_size, kernel_size=7, stride=2, padding=3, bias=False)
    return stem, BATCH_NORM, kinds.Pool(kernel_size=3, stride=2, padding=1)


def stage_convolutions(model: kinds.ConvNetModel, stage: kinds.Stage, stride: int) -> tuple[kinds.Conv2d, ...]:
    """The convolutions of a block; a norm follows each."""
    wide = stage.channels * WIDER[model.block]
    three = kinds.Conv2d(out_channels=stage.channels, kernel_size=3, stride=stride, padding=1, bias=False)
    if model.block == "basic":
        return three, kinds.Conv2d(out_channels=stage.channels, kernel_size=3, padding=1, bias=False)
    pointwise = kinds.Conv2d(out_channels=stage.channels, kernel_size=1, bias=False)
    return pointwise, three, kinds.Conv2d(out_channels=wide, kernel_size=1, bias=False)


def shortcut(channels: int, stride: int) -> kinds.Conv2d:
    return kinds.Conv2d(out_channels=channels, kernel_size=1, stride=stride, bias=False)


@lru_cache(maxsize=64)  # as a decoder's
def residual_net_spec(model: kinds.ConvNetModel) -> spec.ModelSpec:
    shapes = LayerShapes((model.num_channels, model.image_size, model.image_size))
    blocks: list[tuple[Modules, int]] = [(_all(shapes, stem_layers(model)), 1)]
    for stage in model.stages:
        blocks.append((_block(shapes, model, stage, stage.stride), 1))
        if stage.blocks > 1:
            blocks.append((_block(shapes, model, stage, 1), stage.blocks - 1))
    blocks.append(
        (_all(shapes, (kinds.Pool(pool="global"), kinds.Flatten(), kinds.Linear(out_features=model.num_classes))), 1)
    )
    return _in_a_row(blocks)


def _all(shapes: LayerShapes, layers: tuple[kinds.Layer, ...]) -> Modules:
    return tuple(module for layer in layers for module in shapes.place(layer))


def _block(shapes: LayerShapes, model: kinds.ConvNetModel, stage: kinds.Stage, stride: int) -> Modules:
    shortcut_shapes = LayerShapes(shapes.shape)
    inner = [one for conv in stage_convolutions(model, stage, stride) for one in _all(shapes, (conv, BATCH_NORM))]
    if shapes.shape != shortcut_shapes.shape:
        inner += _all(shortcut_shapes, (shortcut(shapes.shape[0], stride), BATCH_NORM))
    return tuple(inner)
