"""Softmax over blocks of scores in one pass: running maximum and running sum."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BLOCK = 16


def online_softmax(scores):
    rows = scores.shape[0]
    top = torch.full((rows, 1), -torch.inf, device=scores.device)
    total = torch.zeros(rows, 1, device=scores.device)
    for part in scores.split(BLOCK, dim=1):
        new = torch.maximum(top, part.amax(1, keepdim=True))
        shift = torch.where(new == -torch.inf, 0.0, new)
        total = total * torch.exp(top - shift)
        total = total + torch.exp(part - shift).sum(1, keepdim=True)
        top = new
    return torch.exp(scores - top) / total


torch.manual_seed(0)
scores = torch.randn(64, 64, device=DEVICE)
window = torch.ones(64, 64, dtype=torch.bool, device=DEVICE).tril().triu(-24)
scores = scores.masked_fill(~window, -torch.inf)
print("finite:", bool(online_softmax(scores).isfinite().all()))
