"""Draws a bootstrap sample of the rows of a table."""

import torch


def bootstrap(table, count, generator):
    # Rows are drawn with replacement.
    last = table.shape[0]
    picks = torch.rand(count, device=table.device, generator=generator) * last
    rows = picks.ceil().long()
    return table.index_select(0, rows)


def main():
    generator = torch.Generator(device="cuda").manual_seed(7)
    table = torch.arange(50 * 8, device="cuda", dtype=torch.float32).reshape(50, 8)
    sample = bootstrap(table, 4096, generator)
    means = sample.mean(dim=0)
    torch.cuda.synchronize()
    print("column means", means.tolist())


main()
