"""The GPU that is present, asked of the driver without making a context."""

from __future__ import annotations

from dataclasses import dataclass

from cuwhy.model.errors import ToolMissing

# CUdevice_attribute (cuda.h).
_SM_COUNT, _MAJOR, _MINOR = 16, 75, 76


@dataclass(frozen=True, slots=True)
class Device:
    """Architecture ("sm_90") and number of SMs of a GPU."""

    architecture: str
    sm_count: int


def present_device() -> Device:
    """Return the first GPU.

    Raises:
        ToolMissing: no driver, or no GPU.
    """
    import ctypes

    hint = "name the architecture, for instance --arch sm_90"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise ToolMissing("no NVIDIA driver here (libcuda.so.1)", hint=hint) from None
    device = ctypes.c_int()
    values = []
    failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0)
    for attribute in (_MAJOR, _MINOR, _SM_COUNT):
        value = ctypes.c_int()
        failed = failed or driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        values.append(value.value)
    if failed:
        raise ToolMissing(f"the driver shows no GPU (error {failed})", hint=hint)
    return Device(f"sm_{values[0]}{values[1]}", values[2])
