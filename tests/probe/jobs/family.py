"""A job with every kind of child: workers that load data, one that is spawned and one that is forked; both train."""

import multiprocessing
import os
import sys
import warnings

import no_compiler  # type: ignore[import-not-found]  # noqa: F401 - beside this file, for its effect
import torch
from torch.utils.data import DataLoader, TensorDataset


def train(steps: int) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    for _ in range(steps):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()


class Scaled(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.transform = torch.nn.Linear(4, 4)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        with torch.no_grad():
            moved: torch.Tensor = self.transform(torch.full((4,), float(index)))
        return moved


def main() -> None:
    warnings.simplefilter("ignore")
    for _ in DataLoader(Scaled(), num_workers=2, multiprocessing_context="fork"):  # spawned ones: loaders.py
        pass
    train(2)
    child = multiprocessing.get_context("spawn").Process(target=train, args=(3,))
    child.start()
    child.join()
    forked = os.fork()
    if not forked:
        train(4)
        sys.exit(0)
    os.waitpid(forked, 0)
    sys.stdout.write(f"{os.getpid()} {child.pid} {forked}\n")
    assert len(DataLoader(TensorDataset(torch.zeros(1)))) == 1


if __name__ == "__main__":
    main()
