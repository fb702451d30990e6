"""A program under the stub driver whose result depends on an order that nothing keeps.

unordered.py LAUNCHES EARLIER LATER [RATE]: launch LATER reads what launch EARLIER wrote, on another
stream.  Right when each launch is waited for, or when something waited in between; else wrong (in
RATE of 10 runs, spread evenly, counted in the file $COUNT).  Prints the result; the exit code is 0 all the same.
"""

from __future__ import annotations

import ctypes
import os
import sys

lib = ctypes.CDLL("libcuda.so.1")
launches, earlier, later = map(int, sys.argv[1:4])
rate = int(sys.argv[4]) if len(sys.argv) > 4 else 10
synchronized = ctypes.c_long.in_dll(lib, "stub_synchronized")
function = ctypes.c_void_p()
lib.cuModuleGetFunction(ctypes.byref(function), None, b"_Z7consumev")
number = ctypes.c_long(42)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(number))


def launch() -> None:
    assert lib.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, arguments, None) == 0


ordered = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
waited = 0
for i in range(1, launches + 1):
    before = synchronized.value
    launch()
    if earlier < i <= later and synchronized.value > before:
        waited += 1
right = ordered or waited > 0
if not right and rate < 10:
    with open(os.environ["COUNT"], "a+", encoding="utf-8") as file:
        file.write(".")
        right = file.tell() * 3 % 10 >= rate
print("result", "right" if right else "wrong")
