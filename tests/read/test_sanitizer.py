"""Readers of Compute Sanitizer's reports, on real reports of programs whose faults are known.

The programs (one H200, sanitizer 2025.3.1) and what is true of them:

- ``oob``: ``fetch4`` (oob.cu:5), inlined at oob.cu:9 in ``scale_tail``, reads ``in + i * 4 MiB``; blocks of
  128 threads, block 8 is the first that is out of range.  The tool printed its first 100 records.
- ``misc 2``: misc.cu:7, thread t of 64 writes a float at byte ``t * 4 MiB`` of an array at 0x400.
- ``misc 5``: misc.cu:10, one thread writes an int to nullptr.
- ``hangrace 0``: a barrier at hangrace.cu:9 under ``threadIdx.x >= 100``, 256 threads.
- ``hangrace 2``: hangrace.cu:18 fills a shared array from memory that nobody wrote (256 floats), :19 reads it
  back without a barrier.
"""

from __future__ import annotations

import lzma
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import slowdown
from cuwhy.model.errors import InputError
from cuwhy.model.facts import SANITIZER_KINDS, SanitizerFault, SanitizerSummary
from cuwhy.model.place import Frame
from cuwhy.read.sanitizer import (
    looks_like_sanitizer_text,
    looks_like_sanitizer_xml,
    read_sanitizer_text,
    read_sanitizer_xml,
)
from cuwhy.read.sanitizer_merge import short_name
from cuwhy.read.sanitizer_text import site_of

DATA = Path(__file__).parent / "data"
MIB = 1 << 20
REPORTS = (
    "memcheck_oob",
    "memcheck_misc2",
    "memcheck_misc5",
    "racecheck_hangrace2",
    "synccheck_hangrace0",
    "initcheck_hangrace2",
)
BOTH = pytest.mark.parametrize("form", ["xml", "log"])


def load(name: str) -> bytes:
    packed = DATA / f"{name}.xz"
    return lzma.decompress(packed.read_bytes()) if packed.exists() else (DATA / name).read_bytes()


def read(data: bytes, form: str):
    return read_sanitizer_xml(data, "a.xml") if form == "xml" else read_sanitizer_text(data, "a.log")


def faults_of(name: str, form: str) -> list[SanitizerFault]:
    return [f for f in read(load(f"{name}.{form}"), form) if isinstance(f, SanitizerFault)]


def text_faults(text: str) -> list[SanitizerFault]:
    facts = read_sanitizer_text(text.encode(), "a.log")
    return [fact for fact in facts if isinstance(fact, SanitizerFault)]


def spots(fault: SanitizerFault) -> list[str]:
    assert fault.place is not None
    return [frame.short for frame in fault.place.frames]


# --- real reports -----------------------------------------------------------------------------------


@BOTH
def test_out_of_bounds_read_in_an_inlined_function(form: str) -> None:
    (fault,) = faults_of("memcheck_oob", form)
    assert (fault.tool, fault.kind, fault.access, fault.space) == (
        "memcheck",
        "out-of-bounds",
        "read",
        "global",
    )
    assert spots(fault) == ["oob.cu:5", "oob.cu:9"]
    assert fault.place is not None
    assert fault.place.function.startswith("fetch4")
    assert fault.place.offset == 0x90
    assert fault.short == "scale_tail"
    assert fault.width == 8
    assert fault.records == fault.threads.count == 100
    assert fault.threads.first_block == (8, 0, 0)
    assert fault.threads.first_thread == (0, 0, 0)
    assert fault.threads.blocks == 1
    assert fault.threads.pattern == "threads 0 to 99 of block 8"
    assert fault.address == fault.low
    assert fault.high - fault.low == 99 * 4 * MIB
    assert fault.host == (Frame("main"),)


def test_the_text_tells_the_nearest_allocation() -> None:
    (fault,) = faults_of("memcheck_oob", "log")
    assert fault.allocation is not None
    assert (fault.allocation.side, fault.allocation.size) == ("after", 512)
    # The tool counts from 1: the first byte behind the allocation is "1 bytes after".
    assert fault.allocation.address + 512 + fault.allocation.distance - 1 == fault.address
    assert fault.name == "scale_tail(const float *, float *, int)"


def test_the_host_stub_tells_the_symbol() -> None:
    (fault,) = faults_of("memcheck_oob", "xml")
    assert fault.kernel == "_Z10scale_tailPKfPfi"
    assert fault.name == "scale_tail"


@BOTH
def test_shared_memory_out_of_bounds_write(form: str) -> None:
    fault, *later = faults_of("memcheck_misc2", form)
    assert (fault.kind, fault.access, fault.space, fault.width) == ("out-of-bounds", "write", "shared", 4)
    assert spots(fault) == ["misc.cu:7"]
    assert fault.short == "shared_oob"
    assert (fault.low, fault.high) == (4 * MIB + 0x400, 63 * 4 * MIB + 0x400)
    # 16 MiB is the size of the shared window: every fourth thread wraps to the start of the array.
    assert fault.records == fault.threads.count == 48
    assert fault.threads.warps == 2
    assert [f.kind for f in later] == ["api-error", "api-error"]
    assert [("cudaDeviceSynchronize" in f.message, "cudaMemcpy" in f.message) for f in later] == [
        (True, False),
        (False, True),
    ]


@BOTH
def test_null(form: str) -> None:
    fault = faults_of("memcheck_misc5", form)[0]
    assert (fault.kind, fault.access, fault.space, fault.width) == ("null", "write", "global", 4)
    assert spots(fault) == ["misc.cu:10"]
    assert fault.address == fault.low == fault.high == 0
    assert fault.threads.pattern == "one thread of block 0"
    assert fault.short == "null_deref"


@BOTH
def test_race_has_both_sides(form: str) -> None:
    (fault,) = faults_of("racecheck_hangrace2", form)
    assert (fault.tool, fault.kind) == ("racecheck", "race")
    assert (fault.access, fault.other_access) == ("write", "read")
    assert spots(fault) == ["hangrace.cu:18"]
    assert fault.other is not None
    assert fault.other.short == "hangrace.cu:19"
    assert (fault.place.offset, fault.other.offset) == (0xE0, 0xF0)
    # 256 threads, 4 bytes each: racecheck counts bytes.
    assert fault.hazards == 1024
    assert fault.records == 1
    assert fault.short == "missing_sync"


@BOTH
def test_barrier_in_a_divergent_branch(form: str) -> None:
    (fault,) = faults_of("synccheck_hangrace0", form)
    assert (fault.tool, fault.kind) == ("synccheck", "divergent-barrier")
    assert (fault.access, fault.space, fault.address) == ("", "", None)
    assert spots(fault) == ["hangrace.cu:9"]
    # Only the warp with threads on both sides of 100 diverges.
    assert fault.threads.pattern == "threads 100 to 127 of block 0"
    assert fault.records == 28
    assert "Divergent thread(s) in warp" in fault.message


@BOTH
def test_uninitialized_read(form: str) -> None:
    (fault,) = faults_of("initcheck_hangrace2", form)
    assert (fault.tool, fault.kind, fault.access) == ("initcheck", "uninitialized-read", "read")
    assert spots(fault) == ["hangrace.cu:18"]
    assert fault.width == 4
    assert fault.high - fault.low < 256 * 4
    assert fault.low % 4 == 0


@pytest.mark.parametrize(
    ("name", "tool", "errors"),
    [
        ("memcheck_misc5", "memcheck", 3),
        ("racecheck_hangrace2", "racecheck", 1),
        ("synccheck_hangrace0", "synccheck", 28),
    ],
)
@BOTH
def test_summary(name: str, tool: str, errors: int, form: str) -> None:
    summary = read(load(f"{name}.{form}"), form)[-1]
    assert isinstance(summary, SanitizerSummary)
    assert (summary.tool, summary.errors, summary.warnings) == (tool, errors, 0)


def test_the_text_summary_counts_what_was_not_printed() -> None:
    facts = read_sanitizer_text(load("initcheck_hangrace2.log"), "a.log")
    summaries = [fact for fact in facts if isinstance(fact, SanitizerSummary)]
    assert [(s.tool, s.errors) for s in summaries] == [("initcheck", 256)]


@pytest.mark.parametrize("name", REPORTS)
def test_both_forms_tell_the_same(name: str) -> None:
    def essence(form: str) -> list[tuple[object, ...]]:
        return [
            (
                f.tool,
                f.kind,
                f.short,
                f.access,
                f.space,
                f.width,
                f.address,
                f.low,
                f.high,
                f.records,
                f.hazards,
                f.threads,
            )
            for f in faults_of(name, form)
        ]

    assert essence("xml") == essence("log")


@pytest.mark.parametrize("name", REPORTS)
def test_recognised_by_content(name: str) -> None:
    xml, text = load(f"{name}.xml"), load(f"{name}.log")
    assert looks_like_sanitizer_xml(xml[:4096])
    assert not looks_like_sanitizer_xml(text[:4096])
    assert looks_like_sanitizer_text(text)
    assert not looks_like_sanitizer_text(xml)


def test_origin_points_back() -> None:
    xml = faults_of("memcheck_misc2", "xml")[1]
    assert (xml.origin.artefact, xml.origin.where) == ("a.xml", "record 49")
    text = faults_of("memcheck_misc2", "log")[1]
    line = int(text.origin.where.removeprefix("line "))
    assert b"cudaDeviceSynchronize" in load("memcheck_misc2.log").splitlines()[line - 1]


# --- clean and cut-off runs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "tool"),
    [
        ("ERROR SUMMARY: 0 errors", ""),
        ("RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", "racecheck"),
    ],
)
def test_clean_text_is_a_fact(line: str, tool: str) -> None:
    # The form of the tool's user manual.
    facts = read_sanitizer_text(f"========= COMPUTE-SANITIZER\nok\n========= {line}\n".encode(), "a")
    assert [(f.tool, f.errors, f.warnings) for f in facts if isinstance(f, SanitizerSummary)] == [
        (tool, 0, 0)
    ]
    assert len(facts) == 1


def test_the_command_line_names_the_tool_of_a_clean_run() -> None:
    log = b"$ compute-sanitizer --tool synccheck ./a\n========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
    (summary,) = read_sanitizer_text(log, "a")
    assert isinstance(summary, SanitizerSummary)
    assert summary.tool == "synccheck"


@pytest.mark.parametrize(
    "root", ["<ComputeSanitizerOutput>\n</ComputeSanitizerOutput>", "<ComputeSanitizerOutput/>"]
)
def test_clean_xml_is_a_fact(root: str) -> None:
    # Made from the real layout: a root without records.
    (summary,) = read_sanitizer_xml(f'<?xml version="1.0" encoding="utf-8"?>\n{root}\n'.encode(), "a")
    assert isinstance(summary, SanitizerSummary)
    assert summary.errors == 0


def test_banner_alone_is_no_clean_run() -> None:
    assert read_sanitizer_text(b"========= COMPUTE-SANITIZER\nstill running\n", "a") == ()


def test_cut_off_xml_gives_what_was_complete_and_no_summary() -> None:
    data = load("synccheck_hangrace0.xml")
    third = [m.end() for m in re.finditer(b"</record>", data)][2]
    facts = read_sanitizer_xml(data[: third + 500], "a")
    assert [(type(f), f.records) for f in facts if isinstance(f, SanitizerFault)] == [(SanitizerFault, 3)]
    assert len(facts) == 1


@pytest.mark.parametrize("cut", [64, 90, 400])
def test_xml_cut_before_the_first_record_ends_is_refused(cut: int) -> None:
    with pytest.raises(InputError, match="no complete record"):
        read_sanitizer_xml(load("synccheck_hangrace0.xml")[:cut], "a")


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"<html></html>", b"<?xml version='1.0'?><other/>"])
def test_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        read_sanitizer_xml(data, "a")
    with pytest.raises(InputError):
        read_sanitizer_text(data, "a")


def test_a_document_type_is_refused() -> None:
    with pytest.raises(InputError, match="document type"):
        read_sanitizer_xml(load("memcheck_misc5.xml").replace(b"\n", b"\n<!DOCTYPE x SYSTEM 'y'>", 1), "a")
    bomb = (
        b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
        b"<ComputeSanitizerOutput><record><kind>&b;</kind></record></ComputeSanitizerOutput>"
    )
    with pytest.raises(InputError, match="document type"):
        read_sanitizer_xml(bomb, "a")


def test_entities_inside_a_record_are_not_expanded() -> None:
    data = load("memcheck_misc5.xml").replace(b"null_deref</func>", b"&evil;</func>", 1)
    facts = read_sanitizer_xml(data, "a")
    assert [f.kind for f in facts if isinstance(f, SanitizerFault)] == ["api-error", "api-error"]


def test_a_damaged_record_does_not_hide_the_others() -> None:
    data = load("synccheck_hangrace0.xml")
    damaged = data.replace(b"</threadIdx>", b"</threadIdy>", 0).replace(b"<where>", b"<wher>", 1)
    (fault, _) = read_sanitizer_xml(damaged, "a")
    assert isinstance(fault, SanitizerFault)
    # The damaged first record fails alone; its form is not that of the other 27.
    assert fault.records == 27


# --- merging ----------------------------------------------------------------------------------------


def oob_text(thread: int, block: int, address: int, line: int = 5, kernel: str = "k(float *)") -> str:
    return (
        "========= Invalid __global__ read of size 4 bytes\n"
        f"=========     at f(float *)+0x90 in a.cu:{line}\n"
        f"=========     by thread ({thread},0,0) in block ({block},0,0)\n"
        f"=========     Access to {address:#x} is out of bounds\n"
        f"=========         Device Frame: {kernel}+0x40 in a.cu:9\n"
        "========= \n"
    )


BASE = 0x7F0000000000


@pytest.mark.parametrize(
    ("threads", "pattern", "warps"),
    [
        ([(3, 0)], "one thread of block 0", 1),
        ([(t, 2) for t in range(32, 64)], "all of warp 1 of block 2", 1),
        ([(t, 0) for t in (0, 2, 4)], "3 lanes of warp 0 of block 0", 1),
        ([(t, b) for b in (8, 9, 10) for t in range(64)], "threads 0 to 63 of 3 blocks from block 8 on", 6),
        ([(5, 1), (5, 3)], "one thread of 2 blocks, the first is block 1", 2),
        ([(5, 1), (6, 2)], "some threads of 2 blocks from block 1 on", 2),
        ([(1, 0), (40, 0)], "2 threads in 2 warps of block 0", 2),
    ],
)
def test_patterns(threads: list[tuple[int, int]], pattern: str, warps: int) -> None:
    shuffled = threads[:]
    random.Random(7).shuffle(shuffled)
    (fault,) = text_faults("".join(oob_text(t, b, BASE + t) for t, b in shuffled))
    assert fault.threads.pattern == pattern
    assert fault.threads.warps == warps
    assert fault.threads.count == len(threads)
    assert fault.threads.first_block == (threads[0][1], 0, 0)
    assert fault.threads.first_thread == (threads[0][0], 0, 0)


def test_one_thread_twice_counts_once() -> None:
    (fault,) = text_faults(oob_text(1, 0, BASE) * 2)
    assert (fault.records, fault.threads.count) == (2, 1)


def test_different_lines_and_kernels_are_different_faults() -> None:
    text = oob_text(0, 0, BASE) + oob_text(0, 0, BASE, line=6) + oob_text(0, 0, BASE, kernel="g(int)")
    assert [(f.short, spots(f)[0]) for f in text_faults(text)] == [
        ("k", "a.cu:5"),
        ("k", "a.cu:6"),
        ("g", "a.cu:5"),
    ]


def test_a_null_pointer_with_an_index_is_one_fault() -> None:
    (fault,) = text_faults(oob_text(0, 0, 0x10) + oob_text(1, 900, 0x400000))
    assert (fault.kind, fault.low, fault.high) == ("null", 0x10, 0x400000)


def test_null_and_wild_addresses_on_one_line_stay_apart() -> None:
    kinds = [f.kind for f in text_faults(oob_text(0, 0, 0) + oob_text(1, 0, BASE))]
    assert kinds == ["null", "out-of-bounds"]


# --- forms of the user manual, of which no real record was at hand ----------------------------------

AT = "=========     at k(int *)+0x50 in a.cu:6\n=========     by thread (0,0,0) in block (0,0,0)\n"
DOCUMENTED = {
    "misaligned": "Invalid __global__ write of size 4 bytes\n"
    + AT
    + "=========     Address 0x710fdca00001 is misaligned\n",
    "uninitialized-shared-read": "Uninitialized __shared__ memory read of size 4 bytes\n"
    + AT
    + "=========     Address 0x0\n",
    "unused-memory": "Unused __global__ memory in allocation 0x7fed9f400000 of size 100 bytes\n"
    "=========     Not written 80 bytes at offset 0x14 (0x7fed9f400014)\n"
    "=========     80% of allocation were unused.\n",
    "leak": "Leaked 1,024 bytes at 0x7879c0800000\n",
    "api-error": 'Program hit cudaErrorInvalidValue (error 1) due to "invalid argument" on CUDA API call to cudaMemcpy.\n',
    "divergent-barrier": "Barrier error detected. Divergent thread(s) in block.\n" + AT,
    "invalid-barrier": "Barrier error detected. Invalid arguments.\n" + AT,
    "illegal-instruction": "Illegal instruction\n" + AT,
    "out-of-bounds": "Invalid __local__ write of size 4 bytes\n"
    + AT
    + "=========     Address 0xffdb4c is out of bounds\n",
    "other": "Malloc/Free error encountered : Double free\n" + AT + "=========     Address 0x400aff920\n",
}


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_documented_forms(kind: str) -> None:
    assert kind in SANITIZER_KINDS
    (fault,) = text_faults(f"========= COMPUTE-SANITIZER\n========= {DOCUMENTED[kind]}========= \n")
    assert fault.kind == kind


def test_stream_ordered_use_after_free() -> None:
    # The manual names the check; the wording mirrors the tool's "potentially made before memory is allocated".
    text = "========= Invalid __global__ read of size 4 bytes\n" + AT
    (fault,) = text_faults(
        text + "=========     Access to 0x7f0000000000 is potentially made after memory is freed\n"
    )
    assert fault.kind == "use-after-free"


def test_documented_leak_and_allocation_side() -> None:
    text = (
        "========= Leaked 1,024 bytes at 0x7879c0800000\n"
        "=========     Saved host backtrace up to driver entry point at allocation time\n"
        "=========         Host Frame: cudaMalloc [0x56624] in memcheck_demo\n"
        "=========         Host Frame: main [0xae5c] in memcheck_demo\n"
        "========= \n"
        "========= Invalid __global__ write of size 4 bytes\n"
        + AT
        + "=========     Address 0x710fdca00001 is misaligned\n"
        "=========     and is inside the nearest allocation at 0x710fdca00000 of size 4 bytes\n"
        "========= LEAK SUMMARY: 1024 bytes leaked in 1 allocations\n"
        "========= ERROR SUMMARY: 2 errors\n"
    )
    leak, inside = text_faults(text)
    assert leak.allocation is not None
    assert (leak.allocation.size, leak.allocation.address) == (1024, 0x7879C0800000)
    assert leak.host == leak.allocation.frames == (Frame("main"),)
    assert inside.allocation is not None
    assert (inside.allocation.side, inside.allocation.distance, inside.allocation.size) == ("inside", 0, 4)


def test_documented_hazard_mode() -> None:
    text = (
        "========= Error: Potential WAW hazard detected at __shared__ 0x0 in block (0,0,0) :\n"
        "=========     Write Thread (0,0,0) at WAW()+0x2f0 in raceWAW.cu:20\n"
        "=========     Write Thread (1,0,0) at WAW()+0x300 in raceWAW.cu:21\n"
        "=========     Current Value : 1, Incoming Value : 2\n"
        "========= \n"
    )
    (fault,) = text_faults(text * 4)
    assert (fault.kind, fault.space, fault.access, fault.other_access) == ("race", "shared", "write", "write")
    assert spots(fault) == ["raceWAW.cu:20"]
    assert fault.other is not None
    assert fault.other.short == "raceWAW.cu:21"
    assert fault.hazards == fault.records == 4


def test_a_race_with_two_partners_is_two_faults() -> None:
    text = (
        "========= Warning: Race reported between Write access at k+0x140\n"
        "=========     and Read access at k+0xe0 [4 hazards]\n"
        "=========     and Write access at k+0x140 [1,005 hazards]\n"
        "========= \n========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
    )
    facts = read_sanitizer_text(text.encode(), "a")
    first, second, summary = facts
    assert isinstance(first, SanitizerFault)
    assert isinstance(second, SanitizerFault)
    assert [(f.other_access, f.hazards, f.other.offset) for f in (first, second)] == [
        ("read", 4, 0xE0),
        ("write", 1005, 0x140),
    ]
    assert first.message.startswith("Warning: ")
    assert isinstance(summary, SanitizerSummary)
    assert (summary.errors, summary.warnings) == (0, 1)


def test_program_output_between_the_lines_of_a_record_does_no_harm() -> None:
    lines = load("memcheck_misc5.log").splitlines(keepends=True)
    mixed = b"".join(line + b"epoch 3 | ==== loss at 0.5 ====\r\n" for line in lines)
    first = read_sanitizer_text(mixed, "a")[0]
    assert isinstance(first, SanitizerFault)
    assert (first.kind, first.short, spots(first)) == ("null", "null_deref", ["misc.cu:10"])


# --- small parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "function", "offset", "file", "line"),
    [
        ("k(int *)+0x80 in a b.cu:18", "k(int *)", 0x80, "a b.cu", 18),
        ("k():0x160 in m.cu:6", "k()", 0x160, "m.cu", 6),
        ("0x00000058 in test(int*, int*)", "test(int*, int*)", 0x58, None, None),
        ("0x8f0 in /x/s.cu:20:glob(int*)", "glob(int*)", 0x8F0, "/x/s.cu", 20),
        ("ns::k<int>+0x15520", "ns::k<int>", 0x15520, None, None),
        ("k(int) in /input/kernel.cu:9", "k(int)", 0, "/input/kernel.cu", 9),
        ("0x79d8", "", 0x79D8, None, None),
    ],
)
def test_sites(text: str, function: str, offset: int, file: str | None, line: int | None) -> None:
    site = site_of(text)
    assert (site.function, site.offset, site.file, site.line) == (function, offset, file, line)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("add", "add"),
        ("missing_sync(const float *, float *)", "missing_sync"),
        ("void ns::reduce<(int)4, ns::Op<float>>(float *)", "reduce"),
        ("void (anonymous namespace)::k<(bool)1>(T1 *)", "k"),
        ("ns::<unnamed>::saxpy(float, const float *)", "saxpy"),
        (
            "void at::native::elementwise_kernel<(int)4, at::f(x)::[lambda(int) (instance 1)]>(int, T3)",
            "elementwise_kernel",
        ),
        ("my_operator_kernel(int *)", "my_operator_kernel"),
        ("ns::S::operator()(int) const", "operator()"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


HOST = (
    "========= Invalid __global__ read of size 4 bytes\n"
    + AT
    + "=========     Saved host backtrace up to driver entry point at kernel launch time\n"
)


def test_host_frames_without_driver_and_runtime() -> None:
    # The layout of 2022 (module on a line of its own), and of cuda-memcheck.
    text = HOST + (
        "=========     Host Frame: [0x2ea231]\n=========                in /usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
        "=========     Host Frame:cudaLaunchKernel [0x6c318]\n"
        "=========                in /usr/local/cuda/lib64/libcudart.so.11.0\n"
        "=========     Host Frame:invoke(float*, int) in /src/run.cu:31 [0x77] in libapp.so\n"
        "=========     Host Frame:/lib64/libc.so.6 (__libc_start_main + 0xf5) [0x22505]\n"
        "=========     Host Frame:./sync [0x31e2]\n"
    )
    (fault,) = text_faults(text)
    assert fault.host[0] == Frame("invoke(float*, int)", "/src/run.cu", 31)
    assert [frame.function for frame in fault.host[1:]] == ["sync"]


# --- hostile input ----------------------------------------------------------------------------------


def survives(data: bytes, form: str) -> None:
    try:
        facts = read(data, form)
    except InputError as error:
        if "\n" in str(error):
            raise AssertionError("an error is one line") from error
        return
    for fact in facts:
        assert isinstance(fact, SanitizerFault | SanitizerSummary)
        if isinstance(fact, SanitizerFault):
            assert fact.kind in SANITIZER_KINDS
            assert fact.low <= fact.high < 1 << 64
            assert len(fact.message) <= 4096
            assert len(fact.name) <= 4096
            assert fact.records >= 1


@pytest.mark.parametrize("name", ["memcheck_misc5", "racecheck_hangrace2"])
@BOTH
def test_cut_at_any_byte(name: str, form: str) -> None:
    data = load(f"{name}.{form}")
    for cut in range(0, len(data), 3):
        survives(data[:cut], form)


@pytest.mark.parametrize("name", REPORTS)
@BOTH
def test_flipped_bytes(name: str, form: str) -> None:
    source = load(f"{name}.{form}")[:6000]
    rng = random.Random(name)
    for _ in range(60):
        data = bytearray(source)
        for _ in range(rng.randint(1, 12)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        survives(bytes(data), form)


@pytest.mark.parametrize("digits", ["9" * 5000, "-1", "0x" + "f" * 400, "١٢", "1e9", ""])
@BOTH
def test_numbers_of_any_size(digits: str, form: str) -> None:
    for name in ("memcheck_misc5", "racecheck_hangrace2"):
        text = load(f"{name}.{form}").decode()
        survives(re.sub(r"\d+", digits, text).encode(), form)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([*load("memcheck_oob.log").decode().split(" ")[:400], "\n", "========= "]),
        max_size=80,
    )
)
def test_shuffled_words(words: list[str]) -> None:
    survives(" ".join(words).encode(), "log")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_random_record(body: bytes) -> None:
    survives(b"<ComputeSanitizerOutput><record>" + body + b"</record></ComputeSanitizerOutput>", "xml")


def test_deep_and_wide_records() -> None:
    for body in (
        b"<a>" * 50_000,
        b"<where>" * 40 + b"</where>" * 40,
        b"<frame/>" * 30_000,
        b"<who>" * 20_000,
    ):
        survives(b"<ComputeSanitizerOutput><record>" + body + b"</record></ComputeSanitizerOutput>", "xml")


def test_names_are_cut() -> None:
    data = load("memcheck_misc5.xml").replace(b"null_deref</func>", b"n" * 100_000 + b"</func>", 1)
    fault = read_sanitizer_xml(data, "a")[0]
    assert isinstance(fault, SanitizerFault)
    assert len(fault.name) == 4096


MANY = 100_000
BLOCKS = MANY // 125


def many(form: str) -> bytes:
    """The first real record of ``oob`` for 125 threads of each of 800 blocks from 8 on."""
    data = load(f"memcheck_oob.{form}").decode()
    first = (
        data[data.index("  <record>") : data.index("</record>") + 10]
        if form == "xml"
        else "".join(data.splitlines(keepends=True)[1:9])
    )
    if form == "xml":
        head, tail = data[: data.index("  <record>")], "</ComputeSanitizerOutput>\n"
        first = first.replace("<x>0</x>", "<x>@T</x>", 1).replace("<x>8</x>", "<x>@B</x>", 1)
    else:
        head, tail = "========= COMPUTE-SANITIZER\n", "========= ERROR SUMMARY: 100000 errors\n"
        first = first.replace("thread (0,", "thread (@T,").replace("block (8,", "block (@B,")
    assert "@T" in first
    assert "@B" in first
    before, after = first.replace("0x7f5af0800000", "@A").split("@A")
    parts = [head]
    for index in range(MANY):
        who = before.replace("@T", str(index % 125)).replace("@B", str(8 + index // 125))
        parts.append(f"{who}{0x7F5AF0800000 + index * 16:#x}{after}")
    return "".join([*parts, tail]).encode()


@pytest.mark.slow
@BOTH
def test_a_hundred_thousand_records(form: str) -> None:
    data = many(form)
    start = time.process_time()
    fault, summary = read(data, form)
    # 3.0 s (XML) and 4.5 s (text) on the quiet machine; twice that while a neighbour takes the caches.
    assert time.process_time() - start < 9 * slowdown()
    assert isinstance(fault, SanitizerFault)
    assert isinstance(summary, SanitizerSummary)
    assert summary.errors == fault.records == fault.threads.count == MANY
    assert fault.threads.blocks == BLOCKS
    assert fault.threads.pattern == "threads 0 to 124 of 800 blocks from block 8 on"
    assert fault.high - fault.low == (MANY - 1) * 16


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [b"========= ", b"========= at 0x", b"========= Invalid ", b"========= Host Frame: a [0x1] in b", b"\n"],
)
def test_time_does_not_run_away_in_text(line: bytes) -> None:
    data = b"========= Invalid __global__ read of size 8 bytes\n" + (line + b"\n") * (
        8_000_000 // (len(line) + 1)
    )
    start = time.process_time()
    survives(data, "log")
    assert time.process_time() - start < 5 * slowdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"<record>",
        b"<record></record>",
        b"</record>",
        b"<record><who></record>",
        b"<record><kind>x</kind></record>\n",
    ],
)
def test_time_does_not_run_away_in_xml(body: bytes) -> None:
    data = b"<ComputeSanitizerOutput>" + body * (8_000_000 // len(body))
    start = time.process_time()
    survives(data, "xml")
    assert time.process_time() - start < 5 * slowdown()
