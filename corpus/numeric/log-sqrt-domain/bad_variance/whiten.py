"""Standardise the columns of a feature matrix."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def whiten(x):
    mean = x.mean(0)
    variance = (x * x).mean(0) - mean * mean
    return (x - mean) / (torch.sqrt(variance) + 1e-6)


torch.manual_seed(0)
x = torch.randn(1000, 64, device=DEVICE) * 0.01 + 300
print("finite:", bool(whiten(x).isfinite().all()))
