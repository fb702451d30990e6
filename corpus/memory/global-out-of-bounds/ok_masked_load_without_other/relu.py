"""Rectifies a vector whose length is no multiple of the block."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def main():
    n = 98765
    x = torch.arange(n, device="cuda", dtype=torch.float32) - 1000
    out = torch.zeros_like(x)
    relu_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    print("largest", out.max().item())


main()
