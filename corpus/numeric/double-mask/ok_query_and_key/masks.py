"""Cross attention with one additive mask for the queries and one for the keys."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def additive(valid, dtype):
    return (~valid).to(dtype) * torch.finfo(dtype).min


def attend(scores, queries, keys):
    valid = queries[:, :, None] & keys[:, None, :]
    mask = additive(valid, scores.dtype)
    return torch.softmax(scores + mask, dim=-1)


torch.manual_seed(0)
scores = torch.randn(2, 6, 8, device=DEVICE).half()
queries = (torch.arange(6)[None] < torch.tensor([6, 4])[:, None]).to(DEVICE)
keys = (torch.arange(8)[None] < torch.tensor([8, 0])[:, None]).to(DEVICE)
print("finite:", bool(attend(scores, queries, keys).isfinite().all()))
