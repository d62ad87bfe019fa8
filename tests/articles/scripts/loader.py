"""A loader with eight workers and pinned memory, and four steps of training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train() -> None:
    """Train a linear classifier on 256 images."""
    images = TensorDataset(torch.zeros(256, 3, 32, 32), torch.zeros(256, dtype=torch.int64))
    loader = DataLoader(images, batch_size=64, shuffle=True, num_workers=8, pin_memory=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch, labels in loader:
        optimizer.zero_grad()
        scores = model(batch.to("cuda", non_blocking=True))
        nn.functional.cross_entropy(scores, labels.to("cuda", non_blocking=True)).backward()
        optimizer.step()


if __name__ == "__main__":
    train()
