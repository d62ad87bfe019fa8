"""A training loop that knows nothing of being traced."""  # noqa: INP001 - a script, of no package

import torch

BATCH, WIDTH, CLASSES, STEPS = 256, 1024, 10, 100


def train() -> None:
    """A network of three layers, trained with AdamW on numbers made up."""
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
