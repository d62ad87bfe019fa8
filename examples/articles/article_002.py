"""An encoder-decoder transformer: a published function term by term, and the same network as PyTorch trains it.

With a GPU: `python article_002.py`. Without one: `vramtui dry-run --gpu A100-80GB article_002.py`.
"""

import torch
from torch import nn

WIDE, FEED_FORWARD, HEADS, LAYERS, VOCABULARY, BATCH, TOKENS = 512, 2048, 8, 6, 37000, 32, 128


def published(
    title: str, *, size: int = 4, decoders: int = LAYERS, bias: int = 1, dropout: float = 0.1, positions: bool = False
) -> None:
    """Print each term of the published function, in bytes."""
    attention, norm, mlp = 4 * WIDE * WIDE, WIDE + WIDE * bias, 2 * WIDE * FEED_FORWARD
    embeddings = 2 * VOCABULARY * WIDE
    encoder = LAYERS * (attention + 2 * norm + mlp)
    decoder = decoders * (2 * attention + 3 * norm + mlp)
    parameters = embeddings + encoder + decoder + WIDE * VOCABULARY
    weights = parameters * (1 + dropout) * size + (TOKENS * WIDE * 2 if positions else 0)
    print(f"{title}: {parameters} parameters take {weights:.1f} for weights, as much for gradients")
    n, scores, wide = (BATCH * TOKENS * size * each for each in (WIDE, HEADS * TOKENS, FEED_FORWARD))
    encoder_kept = LAYERS * (8 * n + scores + 2 * wide)
    decoder_kept = decoders * (14 * n + 2 * scores + 2 * wide)
    output = n + BATCH * TOKENS * VOCABULARY * size
    masks, ids = TOKENS**2 * (LAYERS + 2 * decoders) * size, 2 * BATCH * TOKENS * 8
    total = 4 * weights + masks + ids + encoder_kept + decoder_kept + output
    if title == "published":
        print(f"one layer: attention {attention}, norm {norm}, feed-forward {mlp}")
        print(f"parameters: embeddings {embeddings}, encoder {encoder}, decoder {decoder}, output {WIDE * VOCABULARY}")
        print(f"gradients {weights:.1f}, Adam's two moments {2 * weights:.1f}, masks {masks}, ids {ids}")
        print(f"kept by the encoder {encoder_kept}, by the decoder {decoder_kept}, by the output layer {output}")
    print(f"{title}: total {total:.1f}")


class Net(nn.Module):
    """Embeddings, nn.Transformer, and the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(VOCABULARY, WIDE), nn.Embedding(VOCABULARY, WIDE)
        self.body = nn.Transformer(WIDE, HEADS, LAYERS, LAYERS, FEED_FORWARD, dropout=0.1, batch_first=True)
        self.output = nn.Linear(WIDE, VOCABULARY)


def measured() -> None:
    """Print PyTorch's counters over two steps of training."""
    allocated = torch.cuda.memory_allocated
    with torch.device("cuda"):
        net = Net()
    print("PyTorch:", sum(weight.numel() for weight in net.parameters()), "parameters, weights", allocated())
    optimizer = torch.optim.Adam(net.parameters())
    for step in (1, 2):
        before = allocated()
        x = torch.zeros(BATCH, TOKENS, dtype=torch.int64, device="cuda")
        mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device="cuda").triu(1)
        print("PyTorch: ids and causal mask", allocated() - before)
        before = allocated()
        memory = net.body.encoder(net.source(x))
        print("PyTorch: encoder's output", memory.nbytes, "kept with it", allocated() - before)
        before = allocated()
        y = net.body.decoder(net.target(x), memory, tgt_mask=mask)
        print("PyTorch: kept by the decoder", allocated() - before)
        before = allocated()
        logits = net.output(y)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), x.flatten())
        print("PyTorch: logits and log-probabilities", allocated() - before)
        loss.backward()
        del x, mask, memory, y, logits, loss
        optimizer.step()
        print(f"PyTorch: step {step}, peak", torch.cuda.max_memory_allocated())
        optimizer.zero_grad()


if __name__ == "__main__":
    published("published")
    published("published, without dropout", dropout=0.0)
    published("published, in fp16", size=2)
    published("published, without a decoder", decoders=0)
    published("published, with positions", positions=True)
    published("published, without biases", bias=0)
    measured()
