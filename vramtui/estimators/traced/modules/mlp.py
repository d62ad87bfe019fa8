"""An MLP of two layers, with GELU between."""

from torch import nn

from vramtui.models.kinds.linear import linear_parts
from vramtui.models.kinds.mlp import MlpModule


def torch_mlp(module: MlpModule, dropout: float) -> nn.Sequential:
    """Up, GELU, down and dropout, as nanoGPT has them."""
    up, down = (
        nn.Linear(layer.in_features, layer.out_features, bias=layer.bias) for layer in linear_parts(module).values()
    )
    return nn.Sequential(up, nn.GELU(), down, nn.Dropout(dropout))
