"""``cuwhy launch-check``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuwhy.launching.check import LaunchCheck

_EXITS = """\
exit codes:
  0  it launches (there may be warnings)
  1  it would be refused
  2  bad arguments, or no such architecture
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "launch-check",
        help="check a launch configuration against an architecture's limits",
        description="Say whether a launch would be accepted, how many blocks an SM holds, and what limits them. "
        "Needs no GPU.",
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--arch", required=True, metavar="ARCH", help="sm_90, 9.0, …, or `native`")
    parser.add_argument("--block", required=True, type=_dim, metavar="X[,Y[,Z]]", help="threads of a block")
    parser.add_argument("--grid", type=_dim, default=[1], metavar="X[,Y[,Z]]", help="blocks of the grid")
    parser.add_argument("--cluster", type=_dim, default=[1], metavar="X[,Y[,Z]]", help="blocks of a cluster")
    parser.add_argument("--registers", type=_number, default=0, metavar="N", help="per thread (ptxas -v)")
    parser.add_argument("--static-shared", type=_number, default=0, metavar="BYTES")
    parser.add_argument("--dynamic-shared", type=_number, default=0, metavar="BYTES")
    parser.add_argument(
        "--max-dynamic-shared",
        type=_number,
        metavar="BYTES",
        help="what cudaFuncAttributeMaxDynamicSharedMemorySize is set to (default: whatever is needed)",
    )
    parser.add_argument(
        "--launch-bounds", type=_number, default=1024, metavar="N", help="the kernel's __launch_bounds__"
    )
    parser.add_argument("--cooperative", action="store_true", help="a cooperative launch")
    parser.add_argument("--sms", type=_number, default=0, metavar="N", help="SMs of the chip, for waves")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def _dim(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.replace("x", ",").split(",")]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3 or any(abs(number) >= 1 << 63 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not one to three numbers")
    return numbers


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a number")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Check and print; 0 when it launches, 1 when not."""
    from cuwhy.launching.check import validate_launch_config

    architecture, sms = arguments.arch, arguments.sms
    if architecture == "native":
        from cuwhy.launching.device import present_device

        device = present_device()
        architecture, sms = device.architecture, sms or device.sm_count
    check = validate_launch_config(
        architecture,
        grid=arguments.grid,
        block=arguments.block,
        cluster=arguments.cluster,
        registers=arguments.registers,
        static_shared=arguments.static_shared,
        dynamic_shared=arguments.dynamic_shared,
        max_dynamic_shared=arguments.max_dynamic_shared,
        max_threads_per_block=arguments.launch_bounds,
        cooperative=arguments.cooperative,
        sm_count=sms,
    )
    if arguments.json:
        _print_json(check)
    else:
        _print_text(check)
    return 0 if check.launches else 1


def _print_json(check: LaunchCheck) -> None:
    import json
    from dataclasses import asdict

    print(json.dumps({"version": 1, "launches": check.launches, **asdict(check)}, indent=2))


def _print_text(check: LaunchCheck) -> None:
    for problem in check.problems:
        print(f"{'error' if problem.error else 'warning'}: {problem.text}")
        if problem.fix:
            print(f"  fix: {problem.fix}")
    resident = check.occupancy
    if resident is not None and check.launches:
        limits = ", ".join(
            f"{name} {most}" for name, most in sorted(resident.limits.items(), key=lambda p: p[1])
        )
        print(
            f"{check.architecture}: {resident.blocks} blocks, {resident.warps} warps on an SM "
            f"({resident.fraction:.0%}); each resource alone would allow: {limits}"
        )
        if check.waves is not None:
            print(f"{check.waves:.2f} waves")
    elif not check.launches:
        print(f"{check.architecture}: would be refused")
