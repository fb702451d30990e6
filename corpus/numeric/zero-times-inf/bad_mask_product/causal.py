"""Causal attention with an additive mask."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def causal_bias(length):
    visible = torch.ones(length, length, device=DEVICE).tril()
    return (1.0 - visible) * float("-inf")


torch.manual_seed(0)
scores = torch.randn(2, 16, 16, device=DEVICE)
weights = torch.softmax(scores + causal_bias(16), dim=-1)
print("finite:", bool(weights.isfinite().all()))
