"""As much of PyTorch as the runner touches."""

from torch import cuda as cuda
from torch import profiler as profiler
