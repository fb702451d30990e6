"""A Python program under the stub driver: allocates, launches the kernel of a dump seven times, fails.

host.py DUMP KERNEL: the dump is written where the driver would write it.
"""

import ctypes
import os
import sys

lib = ctypes.CDLL("libcuda.so.1")
function = ctypes.c_void_p()
lib.cuModuleGetFunction(ctypes.byref(function), None, sys.argv[2].encode())
number = ctypes.c_long(42)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(number))


def make(size):
    address = ctypes.c_ulonglong()
    lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))  # MADE HERE
    return address.value


class Block:
    def warm(self):
        return lib.cuLaunchKernel(function, 64, 1, 1, 128, 1, 1, 0, None, arguments, None)

    def forward(self):
        return lib.cuLaunchKernel(function, 64, 1, 1, 128, 1, 1, 0, None, arguments, None)  # SEVENTH


make(262144)
block = Block()
for _ in range(6):
    assert block.warm() == 0
assert block.forward() == 0
assert block.warm() == 0
if os.path.exists(sys.argv[1]) and os.environ.get("CUDA_ENABLE_COREDUMP_ON_EXCEPTION") == "1":
    with open(sys.argv[1], "rb") as source:
        name = os.environ["CUDA_COREDUMP_FILE"].replace("%p", str(os.getpid()))
        with open(name, "wb") as target:
            target.write(source.read())
    sys.exit(1)
