"""Cosine similarity of embeddings in half precision."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def normalise(x):
    length = x.float().norm(dim=-1, keepdim=True)
    return (x / (length + 1e-8)).half()


torch.manual_seed(0)
x = torch.randn(32, 64)
x[5] = 0
unit = normalise(x.half().to(DEVICE))
print("finite:", bool((unit @ unit.T).isfinite().all()))
