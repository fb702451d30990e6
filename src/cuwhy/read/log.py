"""Captured output of a program: device asserts, CUDA errors, Python tracebacks, and a clean end.

A log is what people have when they have nothing else, and it is mixed: several ranks, progress bars,
colours, the driver's core dump messages.  What is not recognised is passed over.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from cuwhy.model.cuda import CUDA_ERRORS, EXCEPTIONS
from cuwhy.model.facts import (
    AssertMessage,
    CleanExit,
    ErrorReport,
    Fact,
    HostTraceback,
    Origin,
    SanitizerFault,
    SanitizerSummary,
)
from cuwhy.model.place import Frame
from cuwhy.read.sanitizer_merge import ThreadSet, clip, dim3
from cuwhy.read.sanitizer_text import looks_like_sanitizer_text, read_sanitizer_text

_MAX_LINE = 1 << 15
#: What is read at either end of a log that is larger.
_HALF_BYTES = 16 << 20
_HALF_LINES = 400_000
_MAX_PREFIX = 200
#: Lines without a frame after which a traceback counts as cut off.
_MAX_IDLE = 200
_MAX_ASSERTS = 500
_MAX_ASSERT_THREADS = 300_000
_MAX_REPORTS = 200
_MAX_TRACEBACKS = 100
_MAX_OPEN = 16
_MAX_FRAMES = 200
_FRAMES_KEPT = 100


def read_log(data: bytes, artefact: str) -> tuple[Fact, ...]:
    """Read any captured output.

    Args:
        data: what the program wrote; UTF-8, other bytes are replaced.
        artefact: name for the facts' origin.

    Returns:
        In this order: the facts of Compute Sanitizer's lines, if there are any; AssertMessage, one
        for each assertion; ErrorReport; HostTraceback; CleanExit where the output shows success and
        nothing that speaks against it.  Empty when nothing was recognised: that is no error.
    """
    checked: tuple[Fact, ...] = ()
    if looks_like_sanitizer_text(data):
        checked = read_sanitizer_text(data, artefact)
    reader = _Reader(artefact)
    for position, raw in _lines(data):
        line = raw[:_MAX_LINE].decode("utf-8", "replace").rstrip("\r\n")
        if "\r" in line:
            # A progress bar rewrites its line; what counts may stand behind it.
            for part in line.split("\r")[-8:]:
                reader.line(part, position)
        else:
            reader.line(line, position)
    bad = any(
        isinstance(fact, SanitizerFault) or (isinstance(fact, SanitizerSummary) and fact.errors)
        for fact in checked
    )
    return checked + reader.finish(bad)


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield line number and line; of a huge log only its beginning and its end, where the error stands."""
    end = len(data)
    head = islice(enumerate(io.BytesIO(data[:_HALF_BYTES] if end > _HALF_BYTES else data), 1), _HALF_LINES)
    position = read = 0
    for position, raw in head:
        read += len(raw)
        yield position, raw
    if read >= end:
        return
    rest = max(read, end - _HALF_BYTES)
    while data.count(b"\n", rest) > _HALF_LINES:
        rest = end - (end - rest) // 2
    if rest > read:
        # The first line is most likely the rest of one.
        rest = data.find(b"\n", rest) + 1 or rest
    before = data.count(b"\n", 0, rest)
    yield from enumerate(io.BytesIO(data[rest:]), 1 + before)


_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")
_RANK = re.compile(r"\s{0,8}\[(?:rank|default|local_rank)\s?\d{1,6}\]:\s?")
_ASSERT_AT = ": block: ["
_ASSERT = re.compile(
    r": block: \[(\d{1,10}),\s?(\d{1,10}),\s?(\d{1,10})\], thread: \[(\d{1,10}),\s?(\d{1,10}),\s?(\d{1,10})\] "
    r"Assertion `"
)
_ASSERT_HEAD = re.compile(r"(.+?):(\d{1,9}): (.*)\Z")
_NAMED = re.compile(r"\b(cudaError[A-Z]\w{1,60}|cudaErrorECC\w{1,60}|CUDA_ERROR_[A-Z_]{1,60})\b")
_CODE = re.compile(r"(?:\berror[ :=(]{1,3}|\b)(\d{1,4})\s{0,4}[(:,=-]{0,2}\s{0,4}\Z", re.I)
_TEXT = re.compile(
    r"\b(?:CUDA (?:error|Error|ERROR|failure|runtime error)|Triton Error \[CUDA\])\b[^:]{0,200}:\s*(.{1,300})"
)
_NUMBER = re.compile(r"\bCUDA (?:error|failure)(?: code)?[ :=]{1,3}(\d{1,4})\b", re.I)
_SUCCESS = re.compile(r"\bcudaSuccess\b|\bexit(?:ed with)?(?: code| status)[ :=]{1,2}0\b", re.I)
_PRINTED = re.compile(r"(?:.{0,80}\s)?((?:\w{1,40}\.){0,4}\w{0,40}Error) (CUDA error: .*)\Z")
_DRIVER_EXCEPTION = re.compile(r"Detected an exception of type CUDBG_EXCEPTION_\w{1,60} \((\d{1,3})\)")
_HINT = re.compile(r"Search for `(cudaError\w{1,60})'")
_BROKEN = (
    "Segmentation fault",
    "core dumped",
    "Aborted",
    "Killed",
    "GPU coredump generation",
    "] coredump: ",
)

_CODES = {name: code for code, (name, _) in CUDA_ERRORS.items()}
#: Names of the driver API (cuda.h, CUresult) whose numbers are those of the runtime.
_DRIVER = {
    "CUDA_ERROR_INVALID_VALUE": 1,
    "CUDA_ERROR_OUT_OF_MEMORY": 2,
    "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
    "CUDA_ERROR_ECC_UNCORRECTABLE": 214,
    "CUDA_ERROR_INVALID_PTX": 218,
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": 222,
    "CUDA_ERROR_INVALID_HANDLE": 400,
    "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": 701,
    "CUDA_ERROR_LAUNCH_TIMEOUT": 702,
    "CUDA_ERROR_ASSERT": 710,
    "CUDA_ERROR_HARDWARE_STACK_ERROR": 714,
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": 715,
    "CUDA_ERROR_MISALIGNED_ADDRESS": 716,
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": 717,
    "CUDA_ERROR_INVALID_PC": 718,
    "CUDA_ERROR_LAUNCH_FAILED": 719,
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": 720,
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": 912,
    "CUDA_ERROR_UNKNOWN": 999,
}
#: Answers to a question rather than failures: NotReady, PeerAccessAlreadyEnabled, PeerAccessNotEnabled.
_HARMLESS = frozenset(
    {"cudaErrorNotReady", "cudaErrorPeerAccessAlreadyEnabled", "cudaErrorPeerAccessNotEnabled"}
)
_TEXTS = tuple((code, name, text.lower()) for code, (name, text) in CUDA_ERRORS.items())
#: Codes whose text is telling by itself; the others ("invalid argument") count only beside "CUDA".
_TELLING_CODES = frozenset({9, 209, 700, 701, 702, 710, 715, 717, 719, 720, 912})
_TELLING = tuple(entry for entry in _TEXTS if entry[0] in _TELLING_CODES)


@dataclass(slots=True)
class _Assert:
    file: str
    line: int
    function: str
    expression: str
    threads: ThreadSet
    where: str


@dataclass(slots=True)
class _Trace:
    """A traceback that is being read; ``prefix`` stands before each of its lines."""

    prefix: str
    where: str
    frames: list[Frame] = field(default_factory=list)
    idle: int = 0


class _Reader:
    def __init__(self, artefact: str) -> None:
        self._artefact = artefact
        self._room = [_MAX_ASSERT_THREADS]
        self._asserts: dict[tuple[str, str], _Assert | None] = {}
        self._reports: dict[str, ErrorReport] = {}
        self._traces: list[HostTraceback] = []
        self._known: set[tuple[object, ...]] = set()
        self._printed: list[HostTraceback] = []
        self._open: dict[str, _Trace] = {}
        self._clean: CleanExit | None = None
        self._broken = False
        self._driver: ErrorReport | None = None

    # -- lines

    def line(self, line: str, position: int) -> None:
        """Take one line without its end."""
        if "\x1b" in line:
            line = _COLOUR.sub("", line)
        if "========= " in line:
            return
        if _ASSERT_AT in line and self._assertion(line, position):
            return
        if "Traceback (most recent call last):" in line:
            self._begin(line, position)
            return
        if self._open and self._continue(line):
            return
        if "coredump" in line:
            self._driver_exception(line, position)
            self._broken = self._broken or any(mark in line for mark in _BROKEN)
            return
        lowered = line.lower()
        if "cuda" in lowered or any(text in lowered for _, _, text in _TELLING):
            self._error(line, position)
        if _SUCCESS.search(line) is not None:
            # The status of a launch says nothing of what the kernel did.
            if "launch" not in lowered:
                self._clean = CleanExit(clip(line.strip()), self._origin(position))
        elif any(mark in line for mark in _BROKEN):
            self._broken = True

    def _origin(self, position: int) -> Origin:
        return Origin(self._artefact, f"line {position}")

    # -- device asserts

    def _assertion(self, line: str, position: int) -> bool:
        at = line.find(_ASSERT_AT)
        match = _ASSERT.match(line, at)
        if match is None:
            return False
        head = line[:at]
        # A line that was cut off has no end; what is there still tells.
        end = line.rfind("` failed", match.end())
        expression = line[match.end() : end] if end >= 0 else line[match.end() :].rstrip("`")
        key = (head, expression)
        if key not in self._asserts:
            if len(self._asserts) >= _MAX_ASSERTS:
                return True
            rank = _RANK.match(head)
            parts = _ASSERT_HEAD.match(head[rank.end() :] if rank else head)
            found = None
            if parts:
                found = _Assert(
                    clip(parts[1].strip()),
                    int(parts[2]),
                    clip(parts[3]),
                    clip(expression),
                    ThreadSet(self._room),
                    f"line {position}",
                )
                for other in self._asserts.values():
                    if other and (other.file, other.line, other.expression) == (
                        found.file,
                        found.line,
                        found.expression,
                    ):
                        found = other
                        break
            self._asserts[key] = found
        known = self._asserts[key]
        if known is None:
            return False
        block = dim3(int(match[1]), int(match[2]), int(match[3]), False)
        thread = dim3(int(match[4]), int(match[5]), int(match[6]), True)
        if block is not None and thread is not None:
            known.threads.add(block, thread)
        return True

    # -- CUDA errors

    def _error(self, line: str, position: int) -> None:
        if "CUDBG_" in line:
            return
        hint = _HINT.search(line)
        if hint:
            # PyTorch names the error of the line before once more.
            self._name_last(hint[1])
            return
        code, name = self._what(line)
        if not code and not name and not _TEXT.search(line):
            return
        text = clip(_strip_rank(line).strip())
        if text not in self._reports and len(self._reports) < _MAX_REPORTS:
            self._reports[text] = ErrorReport(code, name, text, self._origin(position))
        printed = _PRINTED.match(text)
        if printed and len(self._printed) < _MAX_TRACEBACKS:
            self._printed.append(HostTraceback((), printed[1], clip(printed[2]), self._origin(position)))

    def _driver_exception(self, line: str, position: int) -> None:
        """The exception that the driver names while it writes a core dump: it decides the runtime's code."""
        match = _DRIVER_EXCEPTION.search(line)
        kind = EXCEPTIONS.get(int(match[1])) if match is not None else None
        if kind is None or not kind.runtime:
            return
        if self._driver is None:
            text = clip(line[line.find("Detected an exception") :].strip())
            name = CUDA_ERRORS[kind.runtime][0]
            self._driver = ErrorReport(kind.runtime, name, text, self._origin(position))

    def _what(self, line: str) -> tuple[int, str]:
        """Return code and runtime name of the error that a line tells of; (0, "") for none or an unknown one."""
        for match in _NAMED.finditer(line):
            name = match[1]
            if name in _HARMLESS:
                continue
            if name.startswith("CUDA_ERROR_"):
                code = _DRIVER.get(name, 0)
                return code, CUDA_ERRORS[code][0] if code in CUDA_ERRORS else name
            known = _CODES.get(name)
            if known is None:
                before = _CODE.search(line[max(0, match.start() - 32) : match.start()])
                known = int(before[1]) if before else 0
            return known, name
        lowered = line.lower()
        told = _TEXT.search(line)
        if told:
            words = told[1].lower()
            for code, name, text in _TEXTS:
                if words.startswith(text):
                    return code, name
        if "cuda out of memory" in lowered:
            return 2, CUDA_ERRORS[2][0]
        for code, name, text in _TELLING:
            if text in lowered:
                return code, name
        numbered = _NUMBER.search(line)
        if numbered and int(numbered[1]) in CUDA_ERRORS:
            return int(numbered[1]), CUDA_ERRORS[int(numbered[1])][0]
        return 0, ""

    def _name_last(self, name: str) -> None:
        if not self._reports:
            return
        text, last = next(reversed(self._reports.items()))
        if not last.name:
            self._reports[text] = ErrorReport(_CODES.get(name, 0), name, last.text, last.origin)

    # -- Python tracebacks

    def _begin(self, line: str, position: int) -> None:
        prefix = line[: line.index("Traceback (most")].replace("Exception Group ", "")
        if len(prefix) > _MAX_PREFIX:
            return
        unfinished = self._open.pop(prefix, None)
        if unfinished is not None:
            self._close(unfinished, "", "")
        if len(self._open) < _MAX_OPEN:
            self._open[prefix] = _Trace(prefix, f"line {position}")

    def _continue(self, line: str) -> bool:
        """Give a line to the traceback that it belongs to; True when it is used up."""
        for trace, body in self._bodies(line):
            trace.idle += 1
            if trace.idle > _MAX_IDLE:
                del self._open[trace.prefix]
                self._close(trace, "", "")
            elif body[:1] in (" ", "\t"):
                frame = _frame(body)
                if frame is not None:
                    trace.idle = 0
                    trace.frames.append(frame)
                    if len(trace.frames) > _MAX_FRAMES:
                        # Endless recursion: the way in and the way down tell, the middle repeats.
                        del trace.frames[_FRAMES_KEPT]
                return True
            else:
                match = _EXCEPTION.match(body)
                if match and (match[2] is not None or (trace.frames and match[1].endswith(_BARE))):
                    del self._open[trace.prefix]
                    self._close(trace, match[1], match[2] or "")
                    return False
        return False

    def _bodies(self, line: str) -> list[tuple[_Trace, str]]:
        """The tracebacks that a line may belong to, the one whose prefix it has to the letter first."""
        exact = [(t, line[len(p) :]) for p, t in self._open.items() if line.startswith(p)]
        exact.sort(key=lambda item: -len(item[0].prefix))
        if exact and exact[0][0].prefix:
            return exact[:1]
        timed = [(t, _behind(p, line)) for p, t in self._open.items() if _CLOCK.search(p)]
        return [(t, body) for t, body in timed if body is not None] + exact

    def _close(self, trace: _Trace, exception: str, message: str) -> None:
        if not trace.frames and not exception:
            return
        key = (tuple(trace.frames), exception, message)
        if key in self._known or len(self._traces) >= _MAX_TRACEBACKS:
            return
        self._known.add(key)
        self._traces.append(
            HostTraceback(
                tuple(trace.frames), clip(exception), clip(message), Origin(self._artefact, trace.where)
            )
        )

    # -- all together

    def finish(self, bad: bool) -> tuple[Fact, ...]:
        """Return the facts; ``bad`` when a checker found faults in this run."""
        for trace in self._open.values():
            self._close(trace, "", "")
        told = {(trace.exception.rpartition(".")[2], trace.message) for trace in self._traces}
        for printed in self._printed:
            if (printed.exception.rpartition(".")[2], printed.message) not in told:
                told.add((printed.exception.rpartition(".")[2], printed.message))
                self._traces.append(printed)
        distinct = {id(found): found for found in self._asserts.values() if found is not None}
        asserts = [
            AssertMessage(
                found.file,
                found.line,
                found.function,
                found.expression,
                found.threads.summary(),
                Origin(self._artefact, found.where),
            )
            for found in distinct.values()
        ]
        if self._driver is not None and not self._reports and not asserts:
            # The program was aborted by the dump before it could print an error of its own.
            self._reports[self._driver.text] = self._driver
        facts: tuple[Fact, ...] = (*asserts, *self._reports.values(), *self._traces)
        if not facts and not bad and not self._broken and self._clean is not None:
            return (self._clean,)
        return facts


_FILE = re.compile(r'\s{1,16}(?:\| )?File "([^"]{1,4096})", line (\d{1,9})(?:, in (.{1,4096}))?')
_EXCEPTION = re.compile(r"((?:\w{1,80}\.){0,12}(?:[A-Z]\w{0,120}|error|timeout))(?:: ?(.*))?\Z")
#: How the name of an exception without a message ends; any other single word is the program's own output.
_BARE = ("Error", "Exception", "Interrupt", "Exit", "Warning", "Iteration", "Timeout", "timeout")
_CLOCK = re.compile(r"\d\d:\d\d")


def _frame(body: str) -> Frame | None:
    match = _FILE.match(body)
    if match is None:
        return None
    return Frame(match[3].strip() if match[3] else None, match[1], int(match[2]) or None)


def _strip_rank(line: str) -> str:
    match = _RANK.match(line)
    return line[match.end() :] if match else line


def _behind(prefix: str, line: str) -> str | None:
    """The line behind a prefix with a time in it, whose digits may differ; None when it has no such prefix."""
    head = line[: len(prefix)]
    if len(head) < len(prefix):
        return None
    same = all(a == b or (a.isdigit() and b.isdigit()) for a, b in zip(prefix, head, strict=True))
    return line[len(prefix) :] if same else None
