"""Recurrent layers: LSTM, GRU and plain cells."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from vramtui.core.schema.layer_models import Recurrent


class Recurring(nn.Module):
    """A stack of recurrent layers over (tokens, width); the whole sequence goes on, or its last step."""

    def __init__(self, width: int, layer: Recurrent) -> None:
        super().__init__()
        kinds: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU}
        how: dict[str, Any] = {"proj_size": layer.proj_size} if layer.cell == "lstm" else {}
        if layer.cell not in kinds:
            how = {"nonlinearity": layer.cell.removeprefix("rnn_")}
        self.inner = kinds.get(layer.cell, nn.RNN)(
            width,
            layer.hidden_size,
            layer.num_layers,
            bias=layer.bias,
            batch_first=layer.batch_first,
            dropout=layer.dropout,
            bidirectional=layer.bidirectional,
            **how,
        )
        self.first, self.last = layer.batch_first, layer.output == "last"

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to (batch, tokens, states), or (batch, states)."""
        x, _ = self.inner(x if self.first else x.transpose(0, 1))
        x = x if self.first else x.transpose(0, 1)
        return x[:, -1] if self.last else x
