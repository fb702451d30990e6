import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(in_address, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(in_address.to(tl.pointer_type(tl.float32)) + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, 2 * values, mask=offsets < n)


def weights_address(n):
    weights = torch.ones(n, device="cuda")
    return weights


n = 1 << 22
out = torch.empty(n, device="cuda")
weights = weights_address(n)
noise = torch.full((n,), 5.0, device="cuda")
scale_kernel[(n // 1024,)](weights.data_ptr(), out, n, BLOCK=1024)
print("mean", out.mean().item(), "expected 2.0")
raise SystemExit(0 if out.mean().item() == 2.0 else 1)
