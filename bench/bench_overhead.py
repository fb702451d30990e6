"""What tier 0 of ``cuwhy run`` costs a training step, beside the other ways to know who launched what.

    python bench/bench_overhead.py [--rounds 5] [--steps 10] [--only NAME,...] [--markdown]

Needs a GPU, PyTorch and transformers; ``cupti-python`` and ``compute-sanitizer`` where they are to be compared.
All variants are started together; when all are ready they measure by turns, round after round, with nothing
else on the machine, so that a drift of the clocks meets all of them.  Printed is the median step, its ratio to
the plain program's, the lowest and highest ratio of a round, and whether the loss was the same to the last bit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
START_SECONDS = 120.0


@dataclass
class Variant:
    """One way to run the step: what stands before ``python``, the program's mode, and the environment."""

    name: str
    before: list[str] = field(default_factory=list)
    mode: str = "plain"
    environment: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    process: subprocess.Popen[bytes] | None = None
    rounds: list[list[float]] = field(default_factory=list)
    loss: list[str] = field(default_factory=list)


def variants() -> list[Variant]:
    """Everything that is compared; what is not installed is left out and said."""
    cuwhy = [sys.executable, "-m", "cuwhy", "run"]
    found = [
        Variant("nothing"),
        Variant("nothing again"),
        Variant("cuwhy run", [*cuwhy, "--"]),
        Variant("cuwhy run --history", [*cuwhy, "--history", "--"]),
        Variant("cuwhy run --no-recorder", [*cuwhy, "--no-recorder", "--"]),
        Variant("CUDA_LAUNCH_BLOCKING=1", environment={"CUDA_LAUNCH_BLOCKING": "1"}),
        Variant("TorchDispatchMode with shapes", mode="shapes"),
        Variant("cupti-python callbacks", mode="cupti"),
    ]
    if shutil.which("compute-sanitizer"):
        found.append(
            Variant("compute-sanitizer memcheck", ["compute-sanitizer", "--tool", "memcheck"], steps=1)
        )
    return found


def start(variant: Variant, folder: Path, rounds: int, steps: int) -> None:
    """Start the program of a variant; its output goes to a file beside its results."""
    name = variant.name.replace(" ", "_").replace("/", "_")
    command = [
        *variant.before,
        sys.executable,
        str(HERE / "llama_step.py"),
        f"--mode={variant.mode}",
        f"--turns={folder}",
        f"--name={name}",
        f"--rounds={rounds}",
        f"--steps={variant.steps or steps}",
    ]
    with (folder / f"{name}.log").open("wb") as log:
        variant.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variant.environment},
            start_new_session=True,
        )


def main() -> int:
    """Start all, let them measure by turns, print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--start-seconds", type=float, default=START_SECONDS)
    arguments = parser.parse_args()
    wanted = {name for name in arguments.only.split(",") if name}
    chosen = [v for v in variants() if not wanted or v.name in wanted]
    folder = Path(tempfile.mkdtemp(prefix="turns-"))
    for variant in chosen:
        start(variant, folder, arguments.rounds, arguments.steps)
    ready = _await_ready(chosen, folder, arguments.start_seconds)
    for variant in chosen:
        # What is still starting would disturb what is measured.
        if variant not in ready and variant.process is not None and variant.process.poll() is None:
            os.killpg(variant.process.pid, 9)
    for turn in range(arguments.rounds):
        for variant in list(ready):
            if not _measure(variant, folder, turn):
                ready.remove(variant)
    (folder / "stop").write_text("")
    for variant in chosen:
        if variant.process is not None:
            try:
                variant.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(variant.process.pid, 9)
    _print(chosen, ready, folder)
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if ready else 1


def _file(folder: Path, variant: Variant, suffix: str) -> Path:
    return folder / f"{variant.name.replace(' ', '_').replace('/', '_')}.{suffix}"


def _await_ready(chosen: list[Variant], folder: Path, seconds: float) -> list[Variant]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        waiting = [
            v
            for v in chosen
            if not _file(folder, v, "ready").exists() and v.process is not None and v.process.poll() is None
        ]
        if not waiting:
            break
        time.sleep(0.05)
    return [v for v in chosen if _file(folder, v, "ready").exists()]


def _measure(variant: Variant, folder: Path, turn: int) -> bool:
    _file(folder, variant, f"{turn}.go").write_text("")
    done = _file(folder, variant, f"{turn}.done")
    end = time.monotonic() + 60
    while not done.exists():
        if time.monotonic() > end or variant.process is None or variant.process.poll() is not None:
            return False
        time.sleep(0.005)
    seconds, loss = done.read_text().splitlines()
    variant.rounds.append([float(word) for word in seconds.split()])
    variant.loss.append(loss)
    return True


def _print(chosen: list[Variant], ready: list[Variant], folder: Path) -> None:
    plain = next((v for v in ready if v.name == "nothing"), None)
    base = [statistics.median(r) for r in plain.rounds] if plain is not None else []
    print("| | ms a step | ratio | lowest to highest round | loss |")
    print("|---|---|---|---|---|")
    for variant in chosen:
        if variant not in ready:
            tail = _file(folder, variant, "log").read_text(errors="replace").splitlines()[-1:] or [""]
            print(f"| {variant.name} | not measured: {tail[0][:150]} | | | |")
            continue
        rounds = [statistics.median(r) for r in variant.rounds]
        ratios = [mine / theirs for mine, theirs in zip(rounds, base, strict=False)] or [float("nan")]
        same = "same" if plain is not None and variant.loss == plain.loss else "differs"
        if variant.steps:
            same = "not compared"
        print(
            f"| {variant.name} | {statistics.median(rounds) * 1e3:.2f} | {statistics.median(ratios):.3f} "
            f"| {min(ratios):.3f} to {max(ratios):.3f} | {same} |"
        )


if __name__ == "__main__":
    sys.exit(main())
