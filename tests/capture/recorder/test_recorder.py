"""The recorder in real programs, over a driver that is ours: what it sees, what it survives."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuwhy.capture.launches import slim
from cuwhy.capture.recorder import Control
from cuwhy.locate.recorded import host_frame
from cuwhy.model.facts import LaunchRecord
from cuwhy.read import rawlog
from cuwhy.read.launchlog import read_launchlog

from .conftest import HERE, Bench, logs_in

LOOKUPS = ("linked", "global", "dlsym", "proc", "proc-v1", "proc-ptsz")


def line_of(mark: str, file: str = "program.c") -> int:
    """The line of a source that carries this mark."""
    lines = (HERE / file).read_text().splitlines()
    return next(number for number, text in enumerate(lines, 1) if mark in text)


def host(record: LaunchRecord) -> tuple[str, int | None]:
    frame = host_frame(record)
    assert frame is not None
    return (frame.file or "").rsplit("/", 1)[-1], frame.line


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_every_way_to_the_driver(bench: Bench, tmp_path: Path, lookup: str) -> None:
    program = "linked" if lookup == "linked" else "program"
    bare = bench.bare(program, lookup, "tour")
    run = bench.run(tmp_path / "log", program, lookup, "tour")
    assert (bare.returncode, bare.stdout, bare.stderr) == (run.code, run.out, run.err)
    assert run.code == 0
    log = run.log
    launches = [r for r in log.launches if r.code == 0 and r.number]
    assert [r.number for r in launches] == [1, 2, 3, 4, 5, 6, 7]
    assert [r.kernel for r in launches] == [
        "_Z3addPfi", "_Z3mulPfi", "_Z3addPfi", "_Z3mulPfi", "_Z6hiddenv", "_Z12hiddenkernelv", "_Z3addPfi",
    ]  # fmt: skip
    assert [r.kind for r in launches] == ["kernel", "kernel", "cooperative", *["kernel"] * 4]
    first, _, third, fourth = launches[:4]
    assert (first.grid, first.block, first.dynamic_shared, first.stream) == ((3, 2, 1), (64, 2, 1), 128, 16)
    assert (third.grid, third.block) == ((132, 1, 1), (256, 1, 1))
    assert (fourth.grid, fourth.block, fourth.cluster) == ((8, 1, 1), (128, 1, 1), (2, 1, 1))
    assert (fourth.dynamic_shared, fourth.stream) == (1024, 48)
    assert "early start" in fourth.flags
    assert all(("per-thread stream" in r.flags) == (lookup == "proc-ptsz") for r in launches)
    (captured,) = [r for r in log.launches if "captured" in r.flags]
    (graph,) = [r for r in log.launches if r.kind == "graph"]
    assert (captured.number, graph.number, captured.kernel) == (0, 0, "_Z3addPfi")
    # The native stack, resolved to lines: the frame of one() is the innermost, tour() called it.
    for record, mark in zip(launches, [f"/* LAUNCH {i} */" for i in range(1, 8)], strict=True):
        assert line_of(mark) in [frame.line for frame in record.frames if frame.function == "tour"]
    assert [frame.function for frame in third.frames[:2]] == ["tour", "main"]


def test_refusals_say_what_was_possible(bench: Bench, tmp_path: Path) -> None:
    log = bench.run(tmp_path / "log", "program", "proc", "tour").log
    threads, cooperative, load = log.refused
    assert (threads.record.code, threads.record.block, threads.record.kernel) == (
        1,
        (2048, 1, 1),
        "_Z3mulPfi",
    )
    # A CUkernel: the attributes are those of its CUfunction (the stub refuses the kernel itself).
    assert threads.limit("function_max_threads") == 768
    assert threads.limit("device_max_threads") == 1024
    assert threads.limit("static_shared") == 4096
    assert threads.limit("max_dynamic_shared") == 45056
    assert threads.limit("shared_per_block_optin") == 232448
    assert (cooperative.record.code, cooperative.record.grid) == (720, (9999, 1, 1))
    assert (cooperative.limit("blocks_per_sm"), cooperative.limit("sm_count")) == (2, 132)
    assert (load.record.kind, load.record.code, load.record.kernel) == ("load", 209, "cuModuleLoadData")
    assert (load.limit("compute_major"), load.limit("function_max_threads")) == (9, None)
    # A function that is looked for and not found is written down, but refuses no launch.
    (probe,) = [record for record in log.launches if record.code == 500]
    assert (probe.kind, probe.kernel, host(probe)[1]) == (
        "load",
        "cuModuleGetFunction",
        line_of("/* PROBE */"),
    )
    assert host(threads.record) == ("program.c", line_of("/* REFUSED 1 */"))


def test_allocations(bench: Bench, tmp_path: Path) -> None:
    log = bench.run(tmp_path / "log", "program", "dlsym", "tour").log
    freed, first, last = log.allocations
    assert (first.address, first.size, first.freed) == (0x7F0000000000, 4096, None)
    assert (last.size, last.stream) == (1 << 20, 32)
    assert (freed.address, freed.size) == (0x7F0000001000, 100)
    assert freed.freed is not None
    assert line_of("/* ALLOCATES A */") in [frame.line for frame in first.frames]
    assert line_of("/* FREES B */") in [frame.line for frame in freed.freed_frames]


def test_python_frames(bench: Bench, tmp_path: Path) -> None:
    # ctypes releases the GIL before it calls, as PyTorch and Triton do.
    run = bench.run(tmp_path / "log", sys.executable, HERE / "host.py", "none", "kernel")
    assert run.code == 0, run.err
    launches = run.log.launches
    assert len(launches) == 8
    warm, forward = (re.escape(name) for name in ("Block.warm", "Block.forward"))
    assert re.search(warm if sys.version_info >= (3, 11) else "warm", launches[0].frames[0].function or "")
    assert re.search(
        forward if sys.version_info >= (3, 11) else "forward", launches[6].frames[0].function or ""
    )
    assert host(launches[6]) == ("host.py", line_of("# SEVENTH", "host.py"))
    (block,) = run.log.allocations
    assert block.frames[0].line == line_of("# MADE HERE", "host.py")


@pytest.mark.slow
def test_python_threads_whose_code_comes_and_goes(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(tmp_path / "log", sys.executable, HERE / "stress.py", "3")
    assert (run.code, run.err) == (0, "")
    (raw,) = run.raw
    launches = int(run.out)
    assert launches > 1000
    assert raw.launch_count >= launches
    # No stack is mixed from two: every frame is one that the source has.
    known = re.compile(
        r"made_\d+_é|launch|generator|worker|endless|run|_bootstrap(_inner)?|<lambda>|<module>"
    )
    stacks = {launch.stack for launch in raw.launches()}
    frames = [frame for stack in stacks for frame in raw.stack(stack) if not frame.native]
    assert frames, raw.lost
    lines = len((HERE / "stress.py").read_text().splitlines())
    for frame in frames:
        assert known.fullmatch(frame.function.rpartition(".")[2]), frame
        limit = 9 if frame.file.startswith("<made ") else lines if frame.file.endswith("stress.py") else 5000
        assert 1 <= frame.value <= limit, frame


def test_threads_count_every_launch_once(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(tmp_path / "log", "program", "proc", "threads", "50000")
    assert run.code == 0
    (raw,) = run.raw
    launches = raw.launches()
    assert raw.launch_count == 400_000
    assert max(launch.number for launch in launches) == 400_000
    assert len({launch.number for launch in launches}) == len(launches) > 16_000
    assert len({launch.thread for launch in launches}) >= 1


def test_fork_gives_the_child_a_log_of_its_own(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(tmp_path / "log", "program", "proc", "fork")
    parent, child = map(int, run.out.split()[:2])
    assert {raw.pid: raw.launch_count for raw in run.raw} == {parent: 3, child: 5}


@pytest.mark.slow
def test_signal_handler_that_launches(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(tmp_path / "log", "program", "proc", "signal")
    assert run.code == 0
    (raw,) = run.raw
    assert raw.launch_count == int(run.out.split()[1])


def test_exit_while_a_thread_launches(bench: Bench, tmp_path: Path) -> None:
    for attempt in range(5):
        run = bench.run(tmp_path / f"log{attempt}", "program", "proc", "exit")
        assert (run.code, run.err) == (0, "")


def test_sigkill_leaves_the_last_launches(bench: Bench, tmp_path: Path) -> None:
    process = bench.start(tmp_path / "log", "program", "proc", "kill")
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    (raw,) = logs_in(tmp_path / "log")
    launches = raw.launches()
    assert len(launches) >= 16_383
    assert launches[-1].number == launches[-1].index + 1
    assert launches[-2].code == 0
    assert read_launchlog(slim(raw), "x").launches[-1].kernel == "_Z3addPfi"


def test_abort_inside_the_driver_shows_the_unfinished_launch(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(tmp_path / "log", "program", "proc", "many", "100", env={"STUB_ABORT_AT": "5"})
    assert run.code == -signal.SIGABRT
    assert [(r.number, r.code) for r in run.log.launches] == [(1, 0), (2, 0), (3, 0), (4, 0), (5, None)]


def test_libraries_come_and_go(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(tmp_path / "log", "program", "proc", "unload", "300")
    assert run.code == 0
    assert len(run.log.launches) == 300


@pytest.mark.slow
def test_ten_million_launches(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(tmp_path / "log", "program", "proc", "many", "10000000")
    assert run.code == 0
    (raw,) = run.raw
    assert raw.launch_count == 10_000_000
    assert raw.launches()[-1].number == 10_000_000
    # Bounded whatever the program does, and under a microsecond a launch even on a busy machine.
    assert sum(path.stat().st_size for path in (tmp_path / "log").iterdir()) < 16 << 20
    assert float(run.out.split()[0]) < 1000


# -- no room, no right to write ---------------------------------------------------------


def test_file_size_limit(bench: Bench, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    run = bench.run(tmp_path / "log", "program", "proc", "tour", preexec_fn=limit)
    assert (run.code, run.raw) == (0, [])
    assert run.out == bench.bare("program", "proc", "tour").stdout


def test_unwritable_and_missing_folder(bench: Bench, tmp_path: Path) -> None:
    for folder in ("/proc/self", str(tmp_path / "gone")):
        run = bench.run(tmp_path / "log", "program", "proc", "tour")
        environment = {
            "CUWHY_RECORDER": folder,
            "LD_PRELOAD": str(next((bench.cache / "cuwhy").glob("*.so"))),
        }
        done = subprocess.run(
            [bench.folder / "program", "proc", "tour"],
            env=bench.environment(environment),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, run.out, "")


def test_full_disk(bench: Bench, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        environment = {"XDG_CACHE_HOME": str(bench.cache)}
        run = bench.run(disk, "program", "proc", "many", "50000", env=environment)
        assert (run.code, run.err, run.raw) == (0, "", [])
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# -- controlled reruns --------------------------------------------------------------------


def test_sync_before_chosen_launches(bench: Bench, tmp_path: Path) -> None:
    run = bench.run(tmp_path / "log", "program", "proc", "tour", control=Control(sync=((2, 3), (7, 7))))
    assert run.code == 0
    # Two launches that would have been the seventh are refused: five in all.
    assert "synchronized 5" in run.out
    assert [r.number for r in run.log.launches if "synced" in r.flags and not r.code] == [2, 3, 7]


@pytest.mark.parametrize("lookup", ["proc", "proc-ptsz"])
def test_delay_before_chosen_launches(bench: Bench, tmp_path: Path, lookup: str) -> None:
    begin = time.monotonic()
    control = Control(delay=((1, 4),), microseconds=50_000)
    run = bench.run(tmp_path / "log", "program", lookup, "tour", control=control)
    assert run.code == 0
    # The stub runs host functions where they are put, so the pauses add up.
    assert time.monotonic() - begin > 0.2
    assert "host-functions 4" in run.out
    assert [r.number for r in run.log.launches if "delayed" in r.flags] == [1, 2, 3, 4]


def test_lookup_order_of_others_is_kept(bench: Bench, tmp_path: Path) -> None:
    """RTLD_NEXT means "after whoever asks": a wrapper of malloc must find libc's, not itself."""
    source = tmp_path / "wrap.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdlib.h>\n"
        "static int depth;\n"
        "void *malloc(size_t n) { static void *(*next)(size_t); if (depth++ > 50) abort();\n"
        '  if (!next) next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc"); void *p = next(n); depth--; return p; }\n'
    )
    wrap = tmp_path / "wrap.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", wrap, source, "-ldl"], check=True, timeout=60)
    run = bench.run(tmp_path / "log", "program", "proc", "tour", env={"LD_PRELOAD": str(wrap)})
    assert (run.code, run.err) == (0, "")
    assert len(run.log.refused) == 3


def test_without_a_driver_lookups_fail_as_before(bench: Bench, tmp_path: Path) -> None:
    code = (
        "import ctypes\ntry: ctypes.CDLL(None).cuLaunchKernel\nexcept AttributeError as error: print(error)\n"
    )
    run = bench.run(tmp_path / "log", sys.executable, "-c", code)
    assert "undefined symbol: cuLaunchKernel" in run.out
    assert run.raw == []


def test_reading_never_trusts_the_file(bench: Bench, tmp_path: Path) -> None:
    """Every byte of the header and a sample of the rest set to other values: an error of ours, or facts."""
    from cuwhy.model.errors import InputError

    bench.run(tmp_path / "log", "program", "proc", "tour")
    (path,) = (tmp_path / "log").glob("*.bin")
    good = path.read_bytes()
    for at in [
        *range(0, 512, 3),
        *range(4096, 4096 + 128 * 12, 41),
        *range(len(good) - (3 << 20), len(good), 99_991),
    ]:
        for value in (0, 1, 0x7F, 0xFF):
            bad = bytearray(good)
            bad[at] = value
            try:
                raw = rawlog.RawLog(bytes(bad))
                for launch in raw.launches()[:20]:
                    raw.stack(launch.stack), raw.function(launch.function)
                list(raw.refused()), raw.events()
            except InputError:
                pass


def test_environment_of_the_program_is_kept(bench: Bench, tmp_path: Path) -> None:
    from cuwhy.capture.recorder import prepare

    recorder = prepare(tmp_path, {"LD_PRELOAD": "/lib/mine.so"})
    assert recorder.environment["LD_PRELOAD"].endswith(".so:/lib/mine.so")
    assert set(recorder.environment) == {"LD_PRELOAD", "CUWHY_RECORDER"}


def test_no_compiler_is_said_and_no_more(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuwhy.capture.recorder import prepare

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", str(tmp_path))
    recorder = prepare(tmp_path, {})
    assert recorder.environment == {}
    assert "install" in recorder.note


def test_unwritable_cache_builds_in_the_folder(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuwhy.capture.recorder import prepare

    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    recorder = prepare(tmp_path, {})
    assert recorder.environment["LD_PRELOAD"].startswith(f"{tmp_path}{os.sep}")
    # A cache that others can write to is no place to take a library from.
    (tmp_path / "open" / "cuwhy").mkdir(parents=True)
    (tmp_path / "open" / "cuwhy").chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "open"))
    assert prepare(tmp_path, {}).environment["LD_PRELOAD"].startswith(f"{tmp_path}{os.sep}recorder-")
