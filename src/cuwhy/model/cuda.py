"""What CUDA's own numbers mean: exception codes, error codes, known constants.

Sources: ``cudadebugger.h`` (CUDBGException_t) and ``driver_types.h``
(cudaError) of CUDA 13.0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExceptionKind:
    """One CUDBG exception code.

    Attributes:
        code: numeric value; name: the header's name without its prefix.
        plain: what it means, in plain words.
        runtime: the CUDA error that the runtime reports for it (0: several, or not seen on a device).
    """

    code: int
    name: str
    plain: str
    runtime: int


EXCEPTIONS = {
    kind.code: kind
    for kind in (
        ExceptionKind(1, "LANE_ILLEGAL_ADDRESS", "a thread accessed an address it may not", 700),
        ExceptionKind(2, "LANE_USER_STACK_OVERFLOW", "a thread's stack is exhausted", 700),
        ExceptionKind(3, "DEVICE_HARDWARE_STACK_OVERFLOW", "the hardware call stack overflowed", 0),
        ExceptionKind(4, "WARP_ILLEGAL_INSTRUCTION", "the hardware refused an instruction", 715),
        ExceptionKind(5, "WARP_OUT_OF_RANGE_ADDRESS", "an address outside its memory window", 700),
        ExceptionKind(6, "WARP_MISALIGNED_ADDRESS", "an address that is no multiple of the access size", 716),
        ExceptionKind(
            7, "WARP_INVALID_ADDRESS_SPACE", "an access to a memory space the instruction may not touch", 717
        ),
        ExceptionKind(8, "WARP_INVALID_PC", "execution ran to an address that holds no code", 718),
        ExceptionKind(9, "WARP_HARDWARE_STACK_OVERFLOW", "the hardware call stack overflowed", 0),
        ExceptionKind(10, "DEVICE_ILLEGAL_ADDRESS", "the memory system refused an address", 700),
        ExceptionKind(
            11, "LANE_MISALIGNED_ADDRESS", "an address that is no multiple of the access size", 716
        ),
        ExceptionKind(12, "WARP_ASSERT", "a device-side assert failed", 710),
        ExceptionKind(13, "LANE_SYSCALL_ERROR", "a device-side system call (malloc, free) failed", 719),
        ExceptionKind(14, "WARP_ILLEGAL_ADDRESS", "an address that is not mapped", 700),
        ExceptionKind(15, "LANE_NONMIGRATABLE_ATOMSYS", "a system-wide atomic where it is not allowed", 700),
        ExceptionKind(16, "LANE_INVALID_ATOMSYS", "a system-wide atomic where it is not allowed", 700),
        ExceptionKind(
            17, "CLUSTER_OUT_OF_RANGE_ADDRESS", "a distributed shared memory address out of range", 700
        ),
        ExceptionKind(
            18,
            "CLUSTER_BLOCK_NOT_PRESENT",
            "an access to a block of the cluster that is gone or never was",
            719,
        ),
        ExceptionKind(19, "WARP_STACK_CANARY", "a stack frame's canary was overwritten", 0),
        ExceptionKind(20, "WARP_TMEM_ACCESS_CHECK", "an access to tensor memory that is not allocated", 700),
        ExceptionKind(21, "WARP_TMEM_LEAK", "tensor memory was not freed before the block ended", 721),
        ExceptionKind(22, "WARP_CALL_REQUIRES_NEWER_DRIVER", "a call that needs a newer driver", 719),
    )
}

#: The errors that matter here: code -> (name, text of cudaGetErrorString).
CUDA_ERRORS = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    9: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    46: ("cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"),
    98: ("cudaErrorInvalidDeviceFunction", "invalid device function"),
    209: ("cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"),
    214: ("cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"),
    218: ("cudaErrorInvalidPtx", "a PTX JIT compilation failed"),
    222: ("cudaErrorUnsupportedPtxVersion", "the provided PTX was compiled with an unsupported toolchain."),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    701: ("cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
    702: ("cudaErrorLaunchTimeout", "the launch timed out and was terminated"),
    710: ("cudaErrorAssert", "device-side assert triggered"),
    714: ("cudaErrorHardwareStackError", "hardware stack error"),
    715: ("cudaErrorIllegalInstruction", "an illegal instruction was encountered"),
    716: ("cudaErrorMisalignedAddress", "misaligned address"),
    717: ("cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space"),
    718: ("cudaErrorInvalidPc", "invalid program counter"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    721: ("cudaErrorTensorMemoryLeak", "tensor memory not completely freed"),
    720: ("cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"),
    912: (
        "cudaErrorInvalidClusterSize",
        "a kernel launch error has occurred due to cluster misconfiguration",
    ),
    999: ("cudaErrorUnknown", "unknown error"),
}

#: Values that people use as fillers, so that an index of this size names itself.
KNOWN_CONSTANTS = {
    2**63 - 1: "INT64_MAX",
    2**63: "INT64_MIN (as unsigned)",
    2**64 - 1: "-1 as a 64-bit value (UINT64_MAX)",
    2**31 - 1: "INT32_MAX",
    2**31: "INT32_MIN (as unsigned)",
    2**32 - 1: "-1 as a 32-bit value (UINT32_MAX)",
    0xDEADBEEF: "0xdeadbeef",
    0xCDCDCDCDCDCDCDCD: "0xcd fill pattern",
    0xFFFFFFFF00000000: "-1 in the upper half",
}


def describe_error(code: int) -> str:
    """Return "700 'an illegal memory access was encountered'" for a CUDA error code."""
    name, text = CUDA_ERRORS.get(code, ("", "unknown error"))
    return f"{code} {name} '{text}'" if name else f"{code} '{text}'"
