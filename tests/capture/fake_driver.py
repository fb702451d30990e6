"""Stands in for a program under the CUDA driver: does with the dump variables what the driver does.

fake_driver.py DUMP crash [EXIT]    a fault: write the dump, a message, and go on
fake_driver.py DUMP hang            make the fifo, hang, write the dump when asked, abort
fake_driver.py DUMP deaf            make the fifo, hang, never read it, ignore SIGTERM
fake_driver.py DUMP workers         two processes that crash one after the other, ranks 0 and 1
"""

from __future__ import annotations

import os
import signal
import sys
import time


def name(variable: str) -> str:
    return os.environ[variable].replace("%p", str(os.getpid()))


def write_dump(dump: str) -> None:
    if os.environ.get("CUDA_ENABLE_COREDUMP_ON_EXCEPTION") != "1":
        return
    with open(dump, "rb") as source, open(name("CUDA_COREDUMP_FILE"), "wb") as target:
        target.write(source.read())
    print("Starting GPU coredump generation, set …", file=sys.stderr, flush=True)


def main() -> int:
    dump, what = sys.argv[1:3]
    if what == "crash":
        write_dump(dump)
        if "skip_abort" not in os.environ.get("CUDA_COREDUMP_GENERATION_FLAGS", ""):
            os.abort()
        print("the program's own words", flush=True)
        return int(sys.argv[3]) if len(sys.argv) > 3 else 1
    if what == "hang":
        fifo = name("CUDA_COREDUMP_PIPE")
        os.mkfifo(fifo)
        print("launched", flush=True)
        with open(fifo, "rb") as pipe:
            assert pipe.read(1) == b"1"
        write_dump(dump)
        os.abort()
    if what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.mkfifo(name("CUDA_COREDUMP_PIPE"))
        print("launched", flush=True)
        time.sleep(60)
    if what == "workers":
        for rank, delay in (("1", 0.0), ("0", 0.6)):
            if os.fork() == 0:
                time.sleep(delay)
                # A fresh program, as torchrun starts it, in a session of its own.
                os.setsid()
                os.environ.update(RANK=rank, LOCAL_RANK=rank)
                other = sys.argv[3] if rank == "0" else dump
                os.execv(sys.executable, [sys.executable, __file__, other, "linger"])
        os.wait()
        os.wait()
        return 7
    if what == "linger":
        write_dump(dump)
        time.sleep(1.0)
        return 1
    return 2


sys.exit(main())
