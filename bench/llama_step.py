"""A training step of a small Llama with random weights: the program that overheads are measured on.

    python bench/llama_step.py [--mode plain|shapes|cupti] [--turns FOLDER --name NAME --rounds R] [--steps S]

Alone it prints the median time of a step and the loss after the last one.  With ``--turns`` it takes part in a
measurement: it says when it is ready, and measures whenever it is told that it is its turn, so that several
variants share one run (``bench_overhead.py``).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def build_step(seed: int = 0):  # type: ignore[no-untyped-def]
    """Return a function that makes one training step and returns the loss as a tensor."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=512,
        attn_implementation="sdpa",
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LlamaForCausalLM(config).to(device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    tokens = torch.randint(0, config.vocab_size, (4, 256), device=device)

    def step():  # type: ignore[no-untyped-def]
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss

    return step


@contextlib.contextmanager
def keeping_shapes() -> Iterator[None]:
    """A TorchDispatchMode that keeps name and shapes of each operation, as debugging helpers do."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Shapes(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[object] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            shapes = [tuple(a.shape) for a in args if isinstance(a, torch.Tensor)]
            self.seen.append((str(func), shapes))
            if len(self.seen) > 10_000:
                self.seen.clear()
            return result

    with Shapes():
        yield


@contextlib.contextmanager
def cupti_callbacks() -> Iterator[None]:
    """CUPTI's driver-API callbacks through cupti-python, each keeping the function's name."""
    from cupti import cupti

    seen: list[object] = []

    def callback(data: list[object], domain: object, number: object, info: object) -> None:
        if info.callback_site == cupti.ApiCallbackSite.API_ENTER:  # type: ignore[attr-defined]
            data.append(info.function_name)  # type: ignore[attr-defined]
            if len(data) > 10_000:
                data.clear()

    subscriber = cupti.subscribe(callback, seen)
    cupti.enable_domain(1, subscriber, cupti.CallbackDomain.DRIVER_API)
    try:
        yield
    finally:
        cupti.unsubscribe(subscriber)


MODES = {"plain": contextlib.nullcontext, "shapes": keeping_shapes, "cupti": cupti_callbacks}


def timed(step, steps: int) -> tuple[list[float], float]:  # type: ignore[no-untyped-def]
    """Seconds of each step, host start to device end, and the last loss."""
    import torch

    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    seconds, loss = [], None
    for _ in range(steps):
        wait()
        start = time.perf_counter()
        loss = step()
        wait()
        seconds.append(time.perf_counter() - start)
    return seconds, float(loss.detach()) if loss is not None else 0.0


def take_turns(folder: Path, name: str, rounds: int, step, steps: int) -> None:  # type: ignore[no-untyped-def]
    """Say that we are ready, then measure once a round when the file ``NAME.ROUND.go`` appears."""
    timed(step, 3)
    (folder / f"{name}.ready").write_text("")
    for turn in range(rounds):
        go = folder / f"{name}.{turn}.go"
        while not go.exists():
            if (folder / "stop").exists() or os.getppid() == 1:
                return
            time.sleep(0.01)
        timed(step, 1)
        seconds, loss = timed(step, steps)
        text = " ".join(f"{s:.6f}" for s in seconds) + f"\n{loss!r}\n"
        part = folder / f"{name}.{turn}.part"
        part.write_text(text)
        part.rename(folder / f"{name}.{turn}.done")


def main() -> int:
    """Run alone, or take turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=sorted(MODES), default="plain")
    parser.add_argument("--turns", type=Path)
    parser.add_argument("--name", default="plain")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    with MODES[arguments.mode]():
        step = build_step()
        if arguments.turns:
            take_turns(arguments.turns, arguments.name, arguments.rounds, step, arguments.steps)
            return 0
        timed(step, 3)
        seconds, loss = timed(step, arguments.steps)
        print(f"{statistics.median(seconds) * 1e3:.2f} ms a step, loss {loss!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
