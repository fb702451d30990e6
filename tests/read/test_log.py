"""The reader of program output, on real logs of programs whose faults are known, and on common forms."""

from __future__ import annotations

import lzma
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import slowdown
from cuwhy.model.facts import (
    AssertMessage,
    CleanExit,
    ErrorReport,
    Fact,
    HostTraceback,
    SanitizerFault,
    SanitizerSummary,
)
from cuwhy.model.place import Frame
from cuwhy.read.log import read_log

DATA = Path(__file__).parent / "data"
LOGS = (
    "assert",
    "crash_full",
    "embedding_assert",
    "memcheck_misc5",
    "misaligned",
    "racecheck_hangrace2",
    "synccheck_hangrace0",
    "triton_oob",
)


def load(name: str) -> bytes:
    packed = DATA / f"{name}.log.xz"
    return lzma.decompress(packed.read_bytes()) if packed.exists() else (DATA / f"{name}.log").read_bytes()


def read(text: str) -> tuple[Fact, ...]:
    return read_log(text.encode(), "a.log")


def only(facts: tuple[Fact, ...], kind: type) -> list:
    return [fact for fact in facts if isinstance(fact, kind)]


# --- real logs --------------------------------------------------------------------------------------


def test_assert_of_a_cuda_program() -> None:
    # misc.cu:9: assert(p[threadIdx.x] + (int)threadIdx.x < lim), p zeroed, lim 40, 64 threads.
    (message,) = read_log(load("assert"), "assert.log")
    assert isinstance(message, AssertMessage)
    assert (message.file, message.line) == ("misc.cu", 9)
    assert message.function == "void assert_it(int *, int)"
    assert message.expression == "p[threadIdx.x] + (int)threadIdx.x < lim"
    assert message.threads.count == 24
    assert message.threads.first_block == (0, 0, 0)
    assert message.threads.first_thread == (40, 0, 0)
    assert message.threads.pattern == "threads 40 to 63 of block 0"
    assert (message.origin.artefact, message.origin.where) == ("assert.log", "line 2")


def test_assert_of_pytorch() -> None:
    # A (4, 8) index with the bad value at [2, 3]: the gather kernel has one block for each index.
    (message,) = read_log(load("embedding_assert"), "a")
    assert isinstance(message, AssertMessage)
    assert message.file == "/pytorch/aten/src/ATen/native/cuda/IndexKernelUtils.cu"
    assert message.line == 16
    assert message.function == "vectorized_gather_kernel"
    assert message.expression == (
        'ind >=0 && ind < ind_dim_size && "vectorized gather kernel index out of bounds"'
    )
    assert message.threads.first_block == (2 * 8 + 3, 0, 0)
    assert message.threads.blocks == 1
    assert message.threads.pattern == "all of warp 0 of block 19"


def test_a_printed_exception_of_pytorch() -> None:
    report, printed = read_log(load("crash_full"), "a")
    assert isinstance(report, ErrorReport)
    assert (report.code, report.name) == (717, "cudaErrorInvalidAddressSpace")
    assert report.text.startswith("excepthook AcceleratorError CUDA error: operation not supported")
    assert isinstance(printed, HostTraceback)
    assert printed.exception == "AcceleratorError"
    assert printed.message == "CUDA error: operation not supported on global/shared address space"
    assert printed.frames == ()
    assert printed.user is None


@pytest.mark.parametrize(("name", "code"), [("misaligned", 716), ("triton_oob", 717)])
def test_the_exception_that_the_driver_names_stands_for_the_error_that_was_not_printed(
    name: str, code: int
) -> None:
    # The program was aborted by the dump: it never came to print an error, only "launch: 0 cudaSuccess".
    (report,) = read_log(load(name), "a")
    assert isinstance(report, ErrorReport)
    assert report.code == code
    assert report.text.startswith("Detected an exception of type CUDBG_EXCEPTION_WARP_")


def test_sanitizer_lines_in_a_log() -> None:
    facts = read_log(load("memcheck_misc5"), "a")
    assert [fault.kind for fault in only(facts, SanitizerFault)] == ["null", "api-error", "api-error"]
    assert [summary.errors for summary in only(facts, SanitizerSummary)] == [3]
    (report,) = only(facts, ErrorReport)
    assert (report.code, report.text) == (719, "null sync: 719 cudaErrorLaunchFailure")
    assert not only(facts, CleanExit)


def test_a_race_is_no_clean_exit() -> None:
    assert b"\ncudaSuccess\n" in load("racecheck_hangrace2")
    assert not only(read_log(load("racecheck_hangrace2"), "a"), CleanExit)


def test_success_with_a_clean_check_is_a_clean_exit() -> None:
    facts = read("========= COMPUTE-SANITIZER\ncudaSuccess\n========= ERROR SUMMARY: 0 errors\n")
    assert [type(fact) for fact in facts] == [SanitizerSummary, CleanExit]


# --- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        (
            "700 cudaErrorIllegalAddress an illegal memory access was encountered",
            700,
            "cudaErrorIllegalAddress",
        ),
        ("misc sync: 715 cudaErrorIllegalInstruction", 715, "cudaErrorIllegalInstruction"),
        ("cudaErrorLaunchFailure", 719, "cudaErrorLaunchFailure"),
        ("RuntimeError: CUDA error: device-side assert triggered", 710, "cudaErrorAssert"),
        ("torch.AcceleratorError: CUDA error: misaligned address", 716, "cudaErrorMisalignedAddress"),
        ("RuntimeError: CUDA error: invalid argument", 1, "cudaErrorInvalidValue"),
        (
            "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
            700,
            "cudaErrorIllegalAddress",
        ),
        ("CUDA error at main.cu:12: unspecified launch failure", 719, "cudaErrorLaunchFailure"),
        ("GPUassert: an illegal instruction was encountered main.cu 31", 715, "cudaErrorIllegalInstruction"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            2,
            "cudaErrorMemoryAllocation",
        ),
        ("failed: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", 700, "cudaErrorIllegalAddress"),
        ("error code 998 cudaErrorNewAndStrange", 998, "cudaErrorNewAndStrange"),
        ("CUDA error 719 at x.cu", 719, "cudaErrorLaunchFailure"),
        ("\x1b[31m[rank1]: CUDA error: device-side assert triggered\x1b[0m", 710, "cudaErrorAssert"),
        (" 10%|#   | 1/10\rCUDA error: device-side assert triggered", 710, "cudaErrorAssert"),
    ],
)
def test_error_lines(line: str, code: int, name: str) -> None:
    (report,) = only(read(f"before\n{line}\nafter\n"), ErrorReport)
    assert (report.code, report.name) == (code, name)
    assert report.origin.where == "line 2"
    assert report.text in line


def test_an_unknown_text_is_reported_without_a_code() -> None:
    (report,) = only(read("RuntimeError: CUDA error: the moon is full\n"), ErrorReport)
    assert (report.code, report.name) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "0 cudaSuccess",
        "device: cuda:0, 80 GB",
        "invalid argument",
        "out of memory",
        "CUDA_LAUNCH_BLOCKING=1",
        "poll: 600 cudaErrorNotReady",
        "Detected an exception of type CUDBG_EXCEPTION_WARP_INVALID_ADDRESS_SPACE (7)",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace may be wrong.",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    ],
)
def test_lines_that_are_no_error(line: str) -> None:
    assert not only(read(f"{line}\n"), ErrorReport)


def test_one_line_printed_twice_is_one_report() -> None:
    assert len(only(read("CUDA error: misaligned address\n" * 5), ErrorReport)) == 1


def test_the_hint_of_pytorch_names_the_error_before_it() -> None:
    text = "RuntimeError: CUDA error: some new text\nSearch for `cudaErrorMisalignedAddress' in https://docs.nvidia.com/x\n"
    (report,) = only(read(text), ErrorReport)
    assert (report.code, report.name) == (716, "cudaErrorMisalignedAddress")
    assert report.text == "RuntimeError: CUDA error: some new text"


# --- clean exits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["cudaSuccess\n", "sync: 0 cudaSuccess\n", "process exited with code 0\n"])
def test_clean_exit(text: str) -> None:
    (clean,) = read(text)
    assert isinstance(clean, CleanExit)
    assert clean.text == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "assert launch: 0 cudaSuccess\n",
        "cudaSuccess\n700 cudaErrorIllegalAddress\n",
        "cudaSuccess\nSegmentation fault (core dumped)\n",
        "cudaSuccess\na.cu:9: f(): block: [0,0,0], thread: [1,0,0] Assertion `x` failed.\n",
        'cudaSuccess\nTraceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: x\n',
        "exit code 01\n",
    ],
)
def test_no_clean_exit(text: str) -> None:
    assert not only(read(text), CleanExit)


# --- asserts ----------------------------------------------------------------------------------------


def test_asserts_merge_by_place_and_expression() -> None:
    line = "[rank{r}]: /p/I.cu:{n}: operator(): block: [{b},0,0], thread: [3,0,0] Assertion `{e}` failed.\n"
    text = "".join(
        line.format(r=r, n=n, b=b, e=e)
        for r in (0, 1)
        for n, e in ((111, "i < n"), (112, "j"))
        for b in (4, 5)
    )
    first, second = only(read(text), AssertMessage)
    assert (first.file, first.line, first.function, first.expression) == (
        "/p/I.cu",
        111,
        "operator()",
        "i < n",
    )
    assert (second.line, second.expression) == (112, "j")
    assert first.threads.pattern == "one thread of 2 blocks from block 4 on"


def test_an_assert_that_was_cut_off_still_tells() -> None:
    (message,) = only(
        read("C:\\x\\a.cu:9: void f(): block: [0,0,0], thread: [1,0,0] Assertion `a < b"), AssertMessage
    )
    assert (message.file, message.line, message.expression) == ("C:\\x\\a.cu", 9, "a < b")


# --- tracebacks -------------------------------------------------------------------------------------

PLAIN = """Traceback (most recent call last):
  File "/home/u/train.py", line 20, in <module>
    main()
    ~~~~^^
  File "/home/u/train.py", line 12, in main
    loss = model(x).sum()
           ^^^^^^^^
  File "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", line 1773, in _call_impl
    return forward_call(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
torch.AcceleratorError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
"""
FRAMES = (
    Frame("<module>", "/home/u/train.py", 20),
    Frame("main", "/home/u/train.py", 12),
    Frame("_call_impl", "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", 1773),
)


def test_traceback() -> None:
    facts = read(f"epoch 1\n{PLAIN}")
    (trace,) = only(facts, HostTraceback)
    assert trace.frames == FRAMES
    assert trace.exception == "torch.AcceleratorError"
    assert trace.message == "CUDA error: device-side assert triggered"
    assert trace.user == FRAMES[1]
    assert trace.origin.where == "line 2"
    (report,) = only(facts, ErrorReport)
    assert report.code == 710


@pytest.mark.parametrize(
    "prefix", ["[rank0]: ", "(Worker pid=812) ERROR 06-21 12:00:07 [core.py:40] ", "\x1b[1;35m", "    | "]
)
def test_traceback_with_a_prefix_on_each_line(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in PLAIN.splitlines())
    (trace,) = only(read(text), HostTraceback)
    assert trace.frames == FRAMES
    assert trace.exception == "torch.AcceleratorError"


def test_the_clock_in_a_prefix_may_tick() -> None:
    lines = PLAIN.splitlines()
    text = "".join(f"ERROR 12:00:{n:02} {line}\n" for n, line in enumerate(lines))
    (trace,) = only(read(text), HostTraceback)
    assert trace.frames == FRAMES


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "(W pid={}) 12:00:01 "])
def test_tracebacks_of_two_ranks_interleaved(prefix: str) -> None:
    other = PLAIN.replace("line 12", "line 13")
    text = "".join(
        f"{prefix.format(0)}{a}\n{prefix.format(1)}{b}\n"
        for a, b in zip(PLAIN.splitlines(), other.splitlines(), strict=True)
    )
    first, second = only(read(text), HostTraceback)
    assert first.frames == FRAMES
    assert second.frames == (FRAMES[0], Frame("main", "/home/u/train.py", 13), FRAMES[2])


def test_the_same_traceback_of_many_ranks_is_one() -> None:
    assert len(only(read(PLAIN * 8), HostTraceback)) == 1


@pytest.mark.parametrize(
    "link",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_chained_tracebacks_in_their_order(link: str) -> None:
    second = (
        'Traceback (most recent call last):\n  File "/home/u/b.py", line 3, in g\n    raise X\nKeyError\n'
    )
    first, last = only(read(f"{PLAIN}\n{link}\n\n{second}"), HostTraceback)
    assert first.exception == "torch.AcceleratorError"
    assert (last.exception, last.message, last.frames) == ("KeyError", "", (Frame("g", "/home/u/b.py", 3),))


def test_source_lines_of_a_traceback_are_no_errors() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
        "    if status == cudaErrorIllegalAddress:\nValueError: bad\n"
    )
    assert not only(read(text), ErrorReport)


def test_output_between_the_lines_of_a_traceback() -> None:
    lines = PLAIN.splitlines(keepends=True)
    text = "".join([*lines[:3], "loss 0.5\n", "Done\n", *lines[3:]])
    (trace,) = only(read(text), HostTraceback)
    assert trace.frames == FRAMES


def test_a_traceback_that_was_cut_off_keeps_its_frames() -> None:
    (trace,) = only(read("".join(PLAIN.splitlines(keepends=True)[:6])), HostTraceback)
    assert trace.frames == FRAMES[:2]
    assert trace.exception == ""


def test_endless_recursion_keeps_both_ends() -> None:
    frames = "".join(f'  File "a.py", line {n}, in f\n    f()\n' for n in range(1, 1001))
    (trace,) = only(
        read(f"Traceback (most recent call last):\n{frames}RecursionError: too deep\n"), HostTraceback
    )
    assert [trace.frames[0].line, trace.frames[-1].line] == [1, 1000]
    assert len(trace.frames) == 200


def test_an_error_that_follows_a_stuck_traceback_is_seen() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n' + " x\n" * 500
    (report,) = only(read(f"{text}    CUDA error: misaligned address\n"), ErrorReport)
    assert report.code == 716


# --- hostile input ----------------------------------------------------------------------------------


def survives(data: bytes) -> None:
    for fact in read_log(data, "a"):
        if isinstance(fact, AssertMessage):
            assert max(len(fact.file), len(fact.function), len(fact.expression)) <= 4096
        elif isinstance(fact, ErrorReport):
            assert len(fact.text) <= 4096
            assert 0 <= fact.code < 10_000
        elif isinstance(fact, HostTraceback):
            assert len(fact.message) <= 4096


@pytest.mark.parametrize("name", LOGS)
def test_cut_and_flipped(name: str) -> None:
    data = load(name)[:5000] + PLAIN.encode()
    rng = random.Random(name)
    for _ in range(80):
        survives(data[: rng.randrange(len(data))])
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 20)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        survives(bytes(damaged))


WORDS = [
    *PLAIN.split(" "),
    *load("assert").decode().split(" ")[:60],
    "CUDA error: ",
    "cudaError",
    "\n",
    "\r",
    "\x1b[",
    "9" * 99,
]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_shuffled_words(words: list[str]) -> None:
    survives(" ".join(words).encode())


def test_numbers_and_lines_of_any_size() -> None:
    survives(b"a.cu:" + b"9" * 5000 + b": f: block: [0,0,0], thread: [1,0,0] Assertion `x` failed.\n")
    survives(
        b"a.cu:9: f: block: [9999999999,0,0], thread: [1,0,0] Assertion `" + b"x" * 200_000 + b"` failed.\n"
    )
    survives(b'Traceback (most recent call last):\n  File "a.py", line ' + b"9" * 5000 + b", in f\nE: x\n")
    survives(b"CUDA error: " * 100_000)
    survives(("CUDA error ٣٣٣ cudaError" + "A" * 9000).encode())


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"CUDA error: y",
        b"Error CUDA error: x",
        b"Traceback (most recent call last):",
        b'  File "a", line 1, in f',
        b"CUDA error " * 1000,
        b"a:1: block: [" * 1000,
        b"\r" * 3000,
    ],
)
def test_time_does_not_run_away(line: bytes) -> None:
    data = b"Traceback (most recent call last):\n" + (line + b"\n") * (6_000_000 // (len(line) + 1))
    start = time.process_time()
    survives(data)
    assert time.process_time() - start < 5 * slowdown()


@pytest.mark.slow
def test_the_end_of_a_huge_log_is_read() -> None:
    data = PLAIN.encode() + b"step\n" * 2_000_000 + b"700 cudaErrorIllegalAddress\n"
    start = time.process_time()
    facts = read_log(data, "a")
    assert time.process_time() - start < 5 * slowdown()
    assert [report.code for report in only(facts, ErrorReport)] == [710, 700]
    assert only(facts, ErrorReport)[1].origin.where == f"line {len(PLAIN.splitlines()) + 2_000_001}"


@pytest.mark.slow
def test_a_hundred_thousand_asserts() -> None:
    line = "a.cu:9: f: block: [{},0,0], thread: [{},0,0] Assertion `x` failed.\n"
    data = "".join(line.format(n // 100, n % 100) for n in range(100_000)).encode()
    start = time.process_time()
    (message,) = read_log(data, "a")
    assert time.process_time() - start < 5 * slowdown()
    assert isinstance(message, AssertMessage)
    assert message.threads.count == 100_000
    assert message.threads.pattern == "threads 0 to 99 of 1000 blocks from block 0 on"
