"""Log-likelihood of the target tokens, written out by hand."""

import torch

IGNORED = -100


def token_loss(logits, targets):
    log_probs = logits.log_softmax(dim=-1)
    kept = targets != IGNORED
    picked = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return -(picked * kept).sum() / kept.sum()


def main():
    torch.manual_seed(0)
    logits = torch.randn(4, 16, 320, device="cuda")
    targets = torch.randint(0, 320, (4, 16), device="cuda")
    targets[:, :3] = IGNORED
    loss = token_loss(logits, targets)
    torch.cuda.synchronize()
    print("loss", loss.item())


main()
