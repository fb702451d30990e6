"""A block with an RMS norm in front, as in a Llama."""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        total = x.float().pow(2).sum(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(total / x.shape[-1] + 1e-5)).half()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = RMSNorm(width)
        self.project = nn.Linear(width, width)

    def forward(self, x):
        normed = self.norm(x)
        return normed, x + self.project(normed)


torch.manual_seed(0)
model = Block(256).half().to(DEVICE)
x = torch.randn(8, 256)
x[3] *= 30
with torch.no_grad():
    normed, y = model(x.half().to(DEVICE))
print("finite:", bool(y.isfinite().all()), "rows of zeros:", int((normed == 0).all(1).sum()))
