"""Trains on what workers of every make load; one of them dies, another fails. What it prints does not change."""

import gc
import os
import sys

import no_compiler  # type: ignore[import-not-found]  # noqa: F401 - beside this file, for its effect
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset[torch.Tensor]):
    """Rows that follow from their places; a place beyond `last` fails in the way that is asked for."""

    def __init__(self, last: int = 99, how: str = "") -> None:
        self.last, self.how = last, how

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index > self.last and self.how == "raises":
            raise LookupError(index)
        if index > self.last:
            os._exit(5)
        return torch.full((4,), float(index))


def train(loader: DataLoader[torch.Tensor], epochs: int = 1) -> list[str]:
    # A worker that is forked while an iterator of before waits in a cycle says so when it collects it: the assertion of
    # Process.is_alive in torch/utils/data/dataloader.py's __del__ (PyTorch 2.13).
    gc.collect()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(epochs):
        for batch in loader:
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item().hex())
    return losses


def failing(how: str) -> str:
    try:
        train(DataLoader(Numbers(2, how), batch_size=2, num_workers=1, multiprocessing_context="fork"))
    except (LookupError, RuntimeError) as error:
        return f"{how} {type(error).__name__}"
    return "nothing"


def main() -> None:
    forked = train(DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork"))
    spawned = train(DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context="spawn"))
    served = train(DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context="forkserver"))
    lasting = DataLoader(
        Numbers(),
        batch_size=2,
        num_workers=2,
        multiprocessing_context="fork",
        persistent_workers=True,
        prefetch_factor=1,
    )
    kept = train(lasting, epochs=3)
    sys.stdout.write(f"{forked}\n{spawned}\n{served}\n{kept}\n{failing('raises')}\n{failing('dies')}\n")


if __name__ == "__main__":
    main()
