"""A plain training loop, unaware of a dry run."""  # noqa: INP001 - a script, of no package

import torch

BATCH, WIDTH, CLASSES, STEPS = 256, 1024, 10, 100


def train() -> None:
    """Train a network of three layers with AdamW on random numbers."""
    net = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, CLASSES),
    ).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(STEPS):
        images = torch.randn(BATCH, WIDTH, device="cuda")
        labels = torch.randint(0, CLASSES, (BATCH,), device="cuda")
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    train()
