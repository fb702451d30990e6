"""Mean of the token vectors of each sentence, without the padding."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def pool(tokens, valid):
    kept = tokens * valid[:, :, None]
    count = valid.sum(1, keepdim=True).clamp_min(1)
    return kept.sum(1) / count


torch.manual_seed(0)
tokens = torch.randn(4, 10, 16, device=DEVICE)
lengths = torch.tensor([10, 4, 0, 7])
valid = (torch.arange(10)[None] < lengths[:, None]).float().to(DEVICE)
print("finite:", bool(pool(tokens, valid).isfinite().all()))
