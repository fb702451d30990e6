"""Attention over a batch of sentences of unequal length."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x, valid):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        pair = valid[:, :, None] & valid[:, None, :]
        scores = scores.masked_fill(~pair, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        return weights @ v


torch.manual_seed(0)
model = Attention(32).to(DEVICE)
lengths = torch.tensor([12, 7, 9])
valid = (torch.arange(12)[None] < lengths[:, None]).to(DEVICE)
y = model(torch.randn(3, 12, 32, device=DEVICE), valid)
y.sum().backward()
print("finite:", bool(y.isfinite().all()))
