"""A small UNet with PyTorch's own convolutions (cuDNN off), group norm, attention in its middle, weights averaged."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

torch.backends.cudnn.enabled = False


class Residual(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.conv1, self.conv2 = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.short = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(functional.silu(self.norm1(x)))
        return self.short(x) + self.conv2(functional.silu(self.norm2(y)))


class UNet(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.down2 = Residual(width, 2 * width), Residual(2 * width, 4 * width)
        self.attention = nn.MultiheadAttention(4 * width, 4, batch_first=True)
        self.up1, self.up2 = Residual(6 * width, 2 * width), Residual(3 * width, width)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        b = self.down1(functional.avg_pool2d(a, 2))
        c = self.down2(functional.avg_pool2d(b, 2))
        flat = c.flatten(2).transpose(1, 2)
        c = c + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(c.shape)
        b = self.up1(torch.cat([functional.interpolate(c, scale_factor=2), b], 1))
        return self.last(self.up2(torch.cat([functional.interpolate(b, scale_factor=2), a], 1)))


torch.manual_seed(1)
model = UNet().to("cuda")
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for _ in range(3):
    images = torch.randn(32, 3, 64, 64).to("cuda")
    noise = torch.randn_like(images)
    loss = functional.mse_loss(model(images + noise), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters(), strict=True):
            old.lerp_(new, 0.01)
    print(loss.item())
