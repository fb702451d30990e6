"""Scores short texts with an averaged embedding."""

import torch


class Classifier(torch.nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, dim)
        self.scale = torch.nn.Parameter(torch.ones(dim))

    def forward(self, tokens):
        words = self.embed(tokens)
        return (words.mean(dim=1) * self.scale).sum(dim=1)


def main():
    torch.manual_seed(0)
    vocab = 1000
    padding = vocab
    model = Classifier(vocab + 1, 64).cuda()
    tokens = torch.randint(0, vocab, (32, 20), device="cuda")
    tokens[:, 15:] = padding
    scores = model(tokens)
    loss = scores.square().mean()
    torch.cuda.synchronize()
    print("loss", loss.item())


main()
