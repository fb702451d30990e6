"""The mean of the latest losses, kept in a buffer on the device."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Latest:
    def __init__(self, size):
        self.values = torch.empty(size, device=DEVICE)
        self.count = 0

    def add(self, value):
        self.values[self.count % len(self.values)] = value
        self.count += 1

    def mean(self):
        return self.values.mean()


torch.manual_seed(0)
latest = Latest(100)
for loss in torch.rand(40, device=DEVICE):
    latest.add(loss)
latest.mean()
print("steps:", latest.count)
