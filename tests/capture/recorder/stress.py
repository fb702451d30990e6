"""Threads that launch without the GIL from code that comes and goes, while others collect and look at frames.

stress.py SECONDS: prints how many launches; a thread still launches when the interpreter ends.
"""

import ctypes
import gc
import sys
import threading
import time

lib = ctypes.CDLL("libcuda.so.1")
function = ctypes.c_void_p()
lib.cuModuleGetFunction(ctypes.byref(function), None, b"kernel")
stop = time.monotonic() + float(sys.argv[1])
counts = [0] * 8


def launch():
    return lib.cuLaunchKernel(function, 3, 1, 1, 64, 1, 1, 0, None, None, None)


def generator(n):
    for i in range(n):
        launch()
        yield i


def worker(k):
    n = 0
    while time.monotonic() < stop:
        n += 1
        name = f"made_{n % 19}_é"
        text = "\n" * (n % 7) + f"def {name}(x):\n  return launch() + x\n"
        names = {"launch": launch}
        exec(compile(text, f"<made {n % 5}>", "exec"), names)
        names[name](1)
        sum(generator(3))
        counts[k] += 4


def noise():
    while time.monotonic() < stop:
        gc.collect()
        [frame.f_lineno for frame in sys._current_frames().values()]
        time.sleep(0.001)


def endless():
    while True:
        launch()


threads = [threading.Thread(target=worker, args=(k,)) for k in range(8)] + [threading.Thread(target=noise)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(counts), flush=True)
threading.Thread(target=endless, daemon=True).start()
time.sleep(0.05)
