"""Writes torchvision's nets down as lists of layers: `vramtui/models/readers/torchvision_nets.json`.

usage: python -m benchmarks.vision_nets OUT.json      (needs torch and torchvision 0.28)

Each net is followed by torch.fx, its modules become layers, and branches become marks: each is named by the first free
letter, so that equal blocks are equal lists, which are then folded into repeats.
"""

import json
import operator
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torchvision  # type: ignore[import-not-found] # only here
from torch import fx, nn

from benchmarks.detection_nets import Hold, Regions, nets

NETS = (
    *("alexnet", "vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"),
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d"),
    *("resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2", "densenet121", "densenet161", "densenet169"),
    *("densenet201", "squeezenet1_0", "squeezenet1_1", "mnasnet0_5", "mnasnet1_0", "mobilenet_v2"),
    *("mobilenet_v3_small", "mobilenet_v3_large", "convnext_tiny", "convnext_small", "convnext_base"),
    *("convnext_large", *(f"efficientnet_b{number}" for number in range(8)), "efficientnet_v2_s"),
    *("efficientnet_v2_m", "efficientnet_v2_l"),
    *(f"regnet_{kind}_{size}" for kind in "xy" for size in ("400mf", "800mf", "1_6gf", "3_2gf", "8gf", "16gf", "32gf")),
    *("regnet_y_128gf", "swin_t", "swin_s", "swin_b"),
)
LEAVES = (
    *("LayerNorm2d", "StochasticDepth", "Permute", "ShiftedWindowAttention", "PatchMerging", "FrozenBatchNorm2d"),
    *("Output", "Regions", "Hold"),
)
ACTS = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
    nn.Hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid",
    nn.GELU: "gelu",
    nn.Sigmoid: "sigmoid",
}
LONGEST = 60
Row = dict[str, Any]


class _Leaves(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m).__name__ in LEAVES or super().is_leaf_module(m, module_qualified_name)


def _side(value: Any) -> int:  # noqa: ANN401 - torch has several types of it
    sides = (value, value) if isinstance(value, int) else tuple(value)
    if sides[0] != sides[1]:
        raise ValueError(f"not square: {sides}")
    return int(sides[0])


def _module(module: nn.Module) -> list[Row]:
    """The layers of a module without branches; none where it does nothing."""
    match module:
        case nn.Conv2d() | nn.ConvTranspose2d():
            return [_conv(module)]
        case nn.Linear():
            return [{"type": "linear", "out_features": module.out_features, "bias": module.bias is not None}]
        case nn.BatchNorm2d():
            return [{"type": "norm", "norm": "batch", **_weights(module)}]
        case nn.GroupNorm():
            return [{"type": "norm", "norm": "group", "groups": module.num_groups}]
        case nn.Dropout():
            return [{"type": "dropout", "probability": module.p}] if module.p else []
        case nn.MaxPool2d() | nn.AvgPool2d():
            kind = "max" if isinstance(module, nn.MaxPool2d) else "avg"
            sizes = {"kernel_size": _side(module.kernel_size), "stride": _side(module.stride)}
            return [{"type": "pooling", "pool": kind, **sizes, **_more(module)}]
        case nn.AdaptiveAvgPool2d():
            side = _side(module.output_size)
            return [{"type": "pooling", "pool": "adaptive", "kernel_size": side} if side > 1 else _pooled()]
        case nn.Flatten():
            return [{"type": "flatten"}]
        case nn.Identity():
            return []
    return _own(module)


def _own(module: Any) -> list[Row]:  # noqa: ANN401 - torchvision has no types; as above
    """Torchvision's own modules, and activations."""
    match type(module).__name__:
        case "LayerNorm2d":
            return [{"type": "norm", "norm": "layer2d"}]
        case "LayerNorm":
            return [{"type": "norm"}]
        case "FrozenBatchNorm2d":
            return [{"type": "norm", "norm": "frozen"}]
        case "Output":
            return [{"type": "output", "loss": module.loss, **({"rows": True} if module.rows else {})}]
        case "StochasticDepth":
            return [{"type": "drop-path"}] if module.p else []
        case "Permute":
            return [{"type": "permute", "channels": "last" if list(module.dims) == [0, 2, 3, 1] else "first"}]
        case "ShiftedWindowAttention":
            shifted = {"shifted": True} if any(module.shift_size) else {}
            sizes = {"num_heads": module.num_heads, "window_size": module.window_size[0]}
            return [{"type": "window-attention", **sizes, **shifted}]
        case "PatchMerging":
            return [{"type": "patch-merging"}]
    act: Row = {"type": "activation", "act": ACTS[type(module)]}
    return [act | ({"inplace": True} if getattr(module, "inplace", False) else {})]


def _weights(module: nn.Module) -> Row:
    return {} if all(one.requires_grad for one in module.parameters()) else {"weights": "frozen"}


def _conv(module: nn.Conv2d | nn.ConvTranspose2d) -> Row:
    row: Row = {"type": "conv", "out_channels": module.out_channels, "kernel_size": _side(module.kernel_size)}
    row |= {key: value for key in ("stride", "padding") if (value := _side(getattr(module, key))) != (key == "stride")}
    row |= {"groups": module.groups} if module.groups > 1 else {}
    row |= {"dilation": _side(module.dilation)} if _side(module.dilation) > 1 else {}
    row |= {"transposed": True} if isinstance(module, nn.ConvTranspose2d) else {}
    row |= _weights(module)
    return row | ({"bias": False} if module.bias is None else {})


def _more(module: Any) -> Row:  # noqa: ANN401 - as above
    return ({"padding": _side(module.padding)} if module.padding else {}) | (
        {"ceil_mode": True} if module.ceil_mode else {}
    )


def _pooled() -> Row:
    return {"type": "pooling", "pool": "global"}


class _Writer:
    """Follows a graph; `at` is what the last layer made."""

    def __init__(self, graph: fx.Graph, modules: dict[str, nn.Module]) -> None:
        self.graph, self.modules = graph, modules
        self.rows: list[Row] = []
        self.at: fx.Node | None = None
        self.names: dict[fx.Node, str] = {}
        self.left: dict[fx.Node, int] = {}
        self.sources: dict[fx.Node, list[fx.Node]] = {}
        self.called: set[str] = set()

    def write(self) -> list[Row]:
        """Every layer."""
        sized: dict[fx.Node, fx.Node] = {}
        for node in self.graph.nodes:
            sources = [
                sized.get(one, one)
                for one in node.all_input_nodes
                if self.sources.get(one) or one.op == "placeholder" or one in sized
            ]
            if node.op == "call_function" and node.target in (getattr, operator.getitem):
                sized[node] = sources[0]
            elif node.op not in ("placeholder", "get_attr", "output") and sources:
                self.sources[node] = list(dict.fromkeys(sources))
                for source in self.sources[node]:
                    self.left[source] = self.left.get(source, 0) + 1
        layers = list(self.sources)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self._made(node, layers[0])
        for node, following in zip(layers, [*layers[1:], None], strict=True):
            self._node(node)
            self._made(node, following)
        return self.rows

    def _made(self, node: fx.Node, following: fx.Node | None) -> None:
        """Mark it where it is used twice, or where something else comes between."""
        self.at = node
        left = self.left.get(node, 0)
        goes_on = following is not None and node in self.sources[following]
        if following is not None and any(
            kind in str(following.target) for kind in ("interpolate", "hold", "boxes", "more")
        ):
            goes_on = "interpolate" in str(following.target) and node is self.sources[following][0]
        if left > 1 or (left and not goes_on):
            name = next(letter for letter in _letters() if letter not in self.names.values())
            self.names[node] = name
            self.rows.append({"type": "mark", "name": name})

    def _used(self, node: fx.Node) -> None:
        self.left[node] -= 1
        if not self.left[node]:
            self.names.pop(node, None)

    def _begin(self, node: fx.Node) -> None:
        if self.at is not node:
            self.rows.append({"type": "take", "name": self.names[node]})

    def _node(self, node: fx.Node) -> None:
        sources = self.sources[node]
        name = node.target if isinstance(node.target, str) else node.target.__name__
        module = self.modules.get(name) if node.op == "call_module" else None
        names = [self.names[source] for source in sources] if isinstance(module, (Regions, Hold)) else []
        if isinstance(module, Hold):
            self.rows += [{"type": "take", "name": name} for name in names]
        elif isinstance(module, Regions):
            self.rows.append({"type": "regions", "names": names, "size": module.size, **module.counts})
        elif name in ("add", "iadd", "mul", "cat") and len(sources) > 1:
            self._joined(node, name, sources)
        elif name != "cat":
            self._begin(sources[0])
            self.rows += self._rows(node, name)
        for source in sources:
            self._used(source)

    def _joined(self, node: fx.Node, name: str, sources: list[fx.Node]) -> None:
        here = sources[-1] if self.at is sources[-1] else sources[0]
        if name == "cat":
            here = sources[-1]
        self._begin(here)
        how = {"cat": "concat", "mul": "multiply"}.get(name, "add")
        row: Row = {"type": "join", "names": [self.names[source] for source in sources if source is not here]}
        row |= {} if how == "add" else {"how": how}
        self.rows.append(row | ({"inplace": True} if name == "iadd" and here is node.args[0] else {}))

    def _rows(self, node: fx.Node, name: str) -> list[Row]:
        if node.op == "call_module":
            rows = _module(self.modules[name])
            if name in self.called and next(self.modules[name].parameters(), None) is not None:
                rows = [row | {"weights": "shared"} for row in rows]
            self.called.add(name)
            return rows
        if name == "mul":
            return [{"type": "scale"}]
        if name == "interpolate":
            like = self.sources[node][1:]
            return [{"type": "upsample", "like": self.names[like[0]]} if like else {"type": "upsample"}]
        if "max_pool2d" in name:
            return [
                {
                    "type": "pooling",
                    "kernel_size": node.args[1] if len(node.args) > 1 else node.kwargs["kernel_size"],
                    "stride": node.kwargs["stride"],
                }
            ]
        if name == "normalize":
            return [{"type": "norm", "norm": "l2"}]
        if name == "mean":
            return [_pooled(), {"type": "flatten"}]
        if name in ("relu", "relu_"):
            return [{"type": "activation", **({"inplace": True} if node.kwargs.get("inplace") else {})}]
        if name == "adaptive_avg_pool2d":
            return [_pooled()]
        if name == "flatten":
            return [{"type": "flatten"}]
        if name == "dropout":
            return []
        raise ValueError(f"{name} is not known")


def _letters() -> Iterator[str]:
    return (f"{letter}{number or ''}" for number in range(1000) for letter in "abcdefghijklmnopqrstuvwxyz")


def folded(rows: list[Row]) -> list[Row]:
    """The same with equal stretches in a row as repeats, the longest first."""
    texts = [json.dumps(row, sort_keys=True) for row in rows]
    out: list[Row] = []
    at = 0
    while at < len(rows):
        best = (0, 1, 1)
        for length in range(2, min(LONGEST, (len(rows) - at) // 2) + 1):
            times = 1
            while texts[at + times * length : at + (times + 1) * length] == texts[at : at + length]:
                times += 1
            if times > 1 and _closed(rows[at : at + length]):
                best = max(best, (times * length, length, times))
        covered, length, times = best
        if not covered:
            out.append(rows[at])
            at += 1
            continue
        out.append({"type": "repeat", "times": times, "layers": rows[at : at + length]})
        at += covered
    return out


def _taken(row: Row) -> set[str]:
    """What it takes up of the marks before it."""
    named = {row["name"]} if row["type"] == "take" else {row["like"]} if "like" in row else set()
    return named | set(row.get("names", ()))


def _closed(rows: list[Row]) -> bool:
    marked: set[str] = set()
    for row in rows:
        if row["type"] == "mark":
            marked.add(row["name"])
        elif not _taken(row) <= marked:
            return False
    return True


def main() -> None:
    """Write the file."""
    written: dict[str, Any] = {}
    for name in NETS if len(sys.argv) < 3 else ():
        model = torchvision.models.get_model(name)
        rows = _Writer(_Leaves().trace(model), dict(model.named_modules())).write()
        weights = torchvision.models.get_model_weights(name).DEFAULT
        size = int(getattr(weights.transforms(), "crop_size", [224])[0])
        written[name] = {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "image_size": size,
            "layers": folded(rows),
        }
        sys.stderr.write(f"{name}: {len(rows)} layers, {len(written[name]['layers'])} folded\n")
    for name, part, net, sides in nets():
        rows = _Writer(_Leaves().trace(part), dict(part.named_modules())).write()
        parameters = sum(parameter.numel() for parameter in net.parameters())
        written[name] = {"parameters": parameters, "image_size": sides, "layers": folded(rows)}
        sys.stderr.write(f"{name}: {len(rows)} layers, {len(written[name]['layers'])} folded\n")
    with open(sys.argv[1], "w", encoding="utf-8") as file:  # noqa: PTH123 - a file named on the command line
        rows_of = (f' "{name}": {json.dumps(net, separators=(",", ":"))}' for name, net in written.items())
        file.write("{\n" + ",\n".join(rows_of) + "\n}\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
