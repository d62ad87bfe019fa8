"""The word-level language model of PyTorch's examples: embedding, an LSTM of cuDNN, a wide softmax."""

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(1)
words, lstm, head = (
    nn.Embedding(33278, 650).cuda(),
    nn.LSTM(650, 650, 2, dropout=0.5).cuda(),
    nn.Linear(650, 33278).cuda(),
)
parameters = [*words.parameters(), *lstm.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=1.0)
state = (torch.zeros(2, 20, 650, device="cuda"), torch.zeros(2, 20, 650, device="cuda"))
for _ in range(3):
    tokens = torch.randint(0, 33278, (36, 20)).to("cuda")
    state = tuple(one.detach() for one in state)
    out, state = lstm(words(tokens[:-1]), state)
    loss = functional.cross_entropy(head(out).view(-1, 33278), tokens[1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 0.25)
    optimizer.step()
    print(loss.item())
