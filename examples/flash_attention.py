"""One forward pass of a small Llama with three attention implementations, each in an NVTX range of its own.

Random weights, nothing is downloaded.  Needs torch and transformers:

    cuwhy profile --nvtx eager -- python examples/flash_attention.py
    cuwhy profile --nvtx sdpa_math -- python examples/flash_attention.py
    cuwhy profile --nvtx sdpa_flash -- python examples/flash_attention.py
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaForCausalLM

#: Name of the NVTX range, what transformers calls the implementation, and the kernels that PyTorch may choose.
VARIANTS = (
    ("eager", "eager", None),
    ("sdpa_math", "sdpa", SDPBackend.MATH),
    ("sdpa_flash", "sdpa", SDPBackend.FLASH_ATTENTION),
)


def llama(attention: str, device: str, dtype: torch.dtype, layers: int) -> LlamaForCausalLM:
    """A Llama with 16 heads of 64 and the same random weights for every implementation."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=8192,
        attn_implementation=attention,
    )
    return LlamaForCausalLM(config).to(device=device, dtype=dtype).eval()


@contextlib.contextmanager
def marked(name: str, device: str) -> Iterator[None]:
    """An NVTX range around all work of the GPU that is launched inside."""
    if device != "cuda":
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_push(name)
    try:
        yield
        torch.cuda.synchronize()
    finally:
        torch.cuda.nvtx.range_pop()


def main() -> None:
    """Run every variant twice, the second time inside its range."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    torch.manual_seed(1)
    tokens = torch.randint(4096, (1, options.tokens), device=options.device)
    first = None
    for name, attention, backend in VARIANTS:
        model = llama(attention, options.device, dtype, options.layers)
        chosen = sdpa_kernel(backend) if backend is not None else contextlib.nullcontext()
        with torch.no_grad(), chosen:
            model(tokens, use_cache=False)
            with marked(name, options.device):
                begin = time.perf_counter()
                logits = model(tokens, use_cache=False).logits
            seconds = time.perf_counter() - begin
        first = logits if first is None else first
        apart = (logits - first).abs().max().item()
        print(f"{name:<10} {seconds * 1e3:8.2f} ms  largest difference from eager {apart:.2g}")


if __name__ == "__main__":
    main()
