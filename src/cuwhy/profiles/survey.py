"""Where the GPU's time goes: launches with their durations, from whatever could time them."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuwhy.model.errors import InputError
from cuwhy.model.facts import Dim3
from cuwhy.profiles.ncu import parse_ncu_times
from cuwhy.read.sanitizer_merge import short_name

#: A trace beyond this would need gigabytes to read.
_MAX_TRACE_BYTES = 400 << 20
_MAX_LAUNCHES = 2_000_000
_MAX_NAME = 4_000
#: Of the launches of one kernel, ordered by length: the one that stands for the long ones.
_LONG = 0.9


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch as a timeline has it.

    Attributes:
        kernel: base name, as ``ncu --kernel-name`` wants it; name: with templates and parameters.
        nanoseconds: duration on the GPU.
        device: ordinal, None when not said.
        grid, block: (0, 0, 0) when not said.
        registers: per thread; shared: bytes per block, static and dynamic; None when not said.
    """

    kernel: str
    name: str
    nanoseconds: float
    device: int | None = None
    grid: Dim3 = (0, 0, 0)
    block: Dim3 = (0, 0, 0)
    registers: int | None = None
    shared: int | None = None


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All launches of one kernel.

    Attributes:
        kernel: base name; variants: different template arguments or signatures under it.
        launches: how many; nanoseconds: together; share: % of all kernels' time.
        number: the launch worth a profile, from 1: the first that is about as long as the longest tenth.
        sample: that launch.
        devices: ordinals that it ran on.
    """

    kernel: str
    variants: int
    launches: int
    nanoseconds: float
    share: float
    number: int
    sample: LaunchTime
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """Where the time goes.

    Attributes:
        method: "nsys", "torch" or "ncu".
        kernels: the one with most time first.
        nanoseconds, launches: of all of them.
        architecture: "sm_90", empty when not said; sms: number of SMs, 0 when not said.
    """

    method: str
    kernels: tuple[KernelTime, ...]
    nanoseconds: float
    launches: int
    architecture: str = ""
    sms: int = 0


def survey_of(method: str, launches: Sequence[LaunchTime], architecture: str = "", sms: int = 0) -> Survey:
    """Sum launches, in the order in which they ran, by kernel."""
    groups: dict[str, list[LaunchTime]] = {}
    for launch in launches:
        groups.setdefault(launch.kernel, []).append(launch)
    whole = sum(launch.nanoseconds for launch in launches)
    kernels = []
    for kernel, group in groups.items():
        number = _representative(group)
        part = sum(launch.nanoseconds for launch in group)
        kernels.append(
            KernelTime(
                kernel,
                len({launch.name for launch in group}),
                len(group),
                part,
                part / whole * 100 if whole else 0.0,
                number,
                group[number - 1],
                tuple(sorted({launch.device for launch in group if launch.device is not None})),
            )
        )
    kernels.sort(key=lambda one: (-one.nanoseconds, one.kernel))
    return Survey(method, tuple(kernels), whole, len(launches), architecture, sms)


def _representative(group: Sequence[LaunchTime]) -> int:
    # The longest launch itself may be an outlier of the machine; a kernel's sizes differ, and the long ones cost.
    ordered = sorted(launch.nanoseconds for launch in group)
    long = ordered[min(len(ordered) - 1, int(len(ordered) * _LONG))]
    return next(i for i, launch in enumerate(group, 1) if launch.nanoseconds >= long * _LONG)


# -- PyTorch's profiler ------------------------------------------------------------------


def read_torch_trace(path: str | os.PathLike[str]) -> Survey:
    """Read the kernels of a Chrome trace that PyTorch's profiler exported.

    Raises:
        InputError: it cannot be read, or is no such trace.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        if size > _MAX_TRACE_BYTES:
            raise InputError(
                f"{file}: a trace of {size >> 20} MB; at most {_MAX_TRACE_BYTES >> 20} MB are read"
            )
        content = json.loads(file.read_bytes())
        events = content["traceEvents"]
        if not isinstance(events, list):
            raise TypeError
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{file}: no trace of PyTorch's profiler") from error
    timed = []
    for event in events[:_MAX_LAUNCHES]:
        # The category is "Kernel" in older versions.
        if (
            isinstance(event, dict)
            and str(event.get("cat", "")).lower() == "kernel"
            and event.get("ph") == "X"
        ):
            launch = _torch_launch(event)
            if launch is not None:
                timed.append((_number(event.get("ts")) or 0.0, launch))
    timed.sort(key=lambda pair: pair[0])
    architecture, sms = _torch_device(content)
    return survey_of("torch", [launch for _, launch in timed], architecture, sms)


def _torch_launch(event: dict[str, Any]) -> LaunchTime | None:
    microseconds = _number(event.get("dur"))
    name = str(event.get("name", ""))[:_MAX_NAME]
    if microseconds is None or microseconds < 0 or not name:
        return None
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    return LaunchTime(
        short_name(name),
        name,
        microseconds * 1000,
        _whole(args.get("device")),
        _dim(args.get("grid")),
        _dim(args.get("block")),
        _whole(args.get("registers per thread")),
        _whole(args.get("shared memory")),
    )


def _torch_device(content: dict[str, Any]) -> tuple[str, int]:
    devices = content.get("deviceProperties")
    if not isinstance(devices, list) or not devices or not isinstance(devices[0], dict):
        return "", 0
    major, minor = _whole(devices[0].get("computeMajor")), _whole(devices[0].get("computeMinor"))
    known = major is not None and minor is not None
    return (f"sm_{major}{minor}" if known else ""), _whole(devices[0].get("numSms")) or 0


# -- Nsight Systems ----------------------------------------------------------------------


def read_nsys_trace(text: str) -> Survey:
    """Read ``nsys stats --report cuda_gpu_trace --format csv``: one row a launch or copy.

    Columns are found by their names: versions add and move them.

    Raises:
        InputError: there is no such table in the text.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if "Duration (ns)" in line and "Name" in line), None)
    if start is None:
        raise InputError("nsys printed no table of launches", hint="nsys stats --report cuda_gpu_trace")
    launches = []
    rows = csv.DictReader(lines[start:])
    try:
        for row in rows:
            launch = _nsys_launch(row)
            if launch is not None:
                launches.append(launch)
            if len(launches) >= _MAX_LAUNCHES:
                break
    except csv.Error as error:
        raise InputError(f"nsys printed a damaged table of launches ({error})") from error
    return survey_of("nsys", launches)


def _nsys_launch(row: dict[str, Any]) -> LaunchTime | None:
    name = str(row.get("Name") or "")[:_MAX_NAME]
    nanoseconds = _number(row.get("Duration (ns)"))
    grid = _dim([row.get("GrdX"), row.get("GrdY"), row.get("GrdZ")])
    # Copies and fills stand in the same table, without a grid.
    if not name or nanoseconds is None or not grid[0]:
        return None
    ordinal = re.search(r"\((\d{1,4})\)\s*$", str(row.get("Device") or ""))
    return LaunchTime(
        short_name(name),
        name,
        nanoseconds,
        int(ordinal[1]) if ordinal else None,
        grid,
        _dim([row.get("BlkX"), row.get("BlkY"), row.get("BlkZ")]),
        _whole(row.get("Reg/Trd")),
    )


# -- Nsight Compute ----------------------------------------------------------------------


def read_ncu_times(path: str | os.PathLike[str]) -> Survey:
    """Read a Nsight Compute report with ``gpu__time_duration`` of every launch.

    Raises:
        InputError: it is no report, damaged, or without that metric.
        ToolMissing: NVIDIA's reader is not installed.
    """
    launches = []
    architecture, sms = "", 0
    for one in parse_ncu_times(path):
        nanoseconds = one.value("gpu__time_duration.sum")
        if nanoseconds is None:
            continue
        device, registers = one.value("launch__device_id"), one.value("launch__registers_per_thread")
        architecture = architecture or one.architecture
        sms = sms or int(one.value("launch__sm_count") or 0)
        launches.append(
            LaunchTime(
                one.short,
                one.name,
                nanoseconds,
                int(device) if device is not None else None,
                one.grid,
                one.block,
                int(registers) if registers is not None else None,
            )
        )
    if not launches:
        raise InputError(f"{Path(path)}: no launch with its duration in it")
    return survey_of("ncu", launches, architecture, sms)


def _number(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value.replace(",", ""))
        except ValueError:
            return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18:
        return float(value)
    return None


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 1 << 31 else None


def _dim(values: object) -> Dim3:
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, dict)):
        return 0, 0, 0
    numbers = [_whole(value) or 0 for value in values][:3]
    numbers += [0] * (3 - len(numbers))
    return numbers[0], numbers[1], numbers[2]
