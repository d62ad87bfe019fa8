"""torchvision's ResNet-50 as the ImageNet example trains it, with cuDNN, channels last and a loss that is scaled."""

import torch
from torchvision.models import resnet50

torch.manual_seed(1)
model = resnet50().to("cuda", memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    images = torch.randn(64, 3, 224, 224).to("cuda", memory_format=torch.channels_last)
    classes = torch.randint(0, 1000, (64,)).to("cuda")
    with torch.autocast("cuda", torch.float16):
        loss = torch.nn.functional.cross_entropy(model(images), classes)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(loss.item())
