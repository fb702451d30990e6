"""What a run left -> the diagnosis of its first failure, and sentences on what is not in it."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuwhy.capture.keep import log_kind
from cuwhy.capture.run import Observed
from cuwhy.case.labels import ProcessLabel
from cuwhy.model.diagnosis import Diagnosis
from cuwhy.model.errors import InputError

_MAX_LAUNCH_LOGS = 16
_MAX_DUMPS = 16
# The driver's words differ from version to version; that it speaks of core dumps does not.
_CORE_DUMP = re.compile(rb"core ?dump", re.IGNORECASE)
_DUMPS_OFF = re.compile(rb"CUPTI|profil|debugger|disabled|not supported|not be generated", re.IGNORECASE)
#: An error stands at the end of an output; this much of each stream is searched.
_SEARCHED_BYTES = 2 << 20
_MAX_LINE = 400
_PROFILER = re.compile(rb"torch\.profiler|CUPTI|Kineto|nsys|ncu ", re.IGNORECASE)
_CUDA_ERROR = re.compile(rb"CUDA (?:error|failure|runtime error)|\bcudaError[A-Z]|\bCUDA_ERROR_[A-Z]", re.I)
_NO_GPU = re.compile(
    rb"no CUDA-capable device|driver version is insufficient|Found no NVIDIA driver|No CUDA GPUs are available",
    re.I,
)
#: Shorter texts of the runtime ("invalid argument") are anybody's words.
_TELLING = 18
_FAULT_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be said.

    Attributes:
        diagnosis: of the first dump and the output, None when there is nothing to read.
        notes: sentences on the run: later dumps, why no dump, what would tell more.
    """

    diagnosis: Diagnosis | None
    notes: tuple[str, ...]

    @property
    def found(self) -> bool:
        """True when the diagnosis has a finding."""
        return self.diagnosis is not None and bool(self.diagnosis.findings)


def judge(seen: Observed) -> Verdict:
    """Diagnose the first failure of a run; never raises for what the program left."""
    notes: list[str] = []
    logs = _log_files(seen, notes)
    diagnosis = None
    first = [dump.path for dump in seen.dumps[:_MAX_DUMPS]]
    labels = {dump.path.name: ProcessLabel(dump.label, dump.written, dump.asked) for dump in seen.dumps}
    launches = _launch_files(seen)
    tensors = [item.path for item in seen.tensors if not seen.dumps or item.pid == seen.dumps[0].pid][:1]
    for files in (
        [*first, *logs, *launches, *tensors],
        [*first, *logs, *launches],
        [*first, *logs],
        first,
        logs,
    ):
        if not files:
            continue
        try:
            diagnosis = _diagnose(files, labels)
            break
        except InputError as error:
            if str(error) not in notes:
                notes.append(str(error))
    if not seen.dumps and (seen.code or seen.ended) and not _is_a_launch(diagnosis):
        notes += _without_dump(seen)
    return Verdict(diagnosis, tuple(notes))


def _is_a_launch(diagnosis: Diagnosis | None) -> bool:
    """True when a launch that never ran is the reason: then no core dump is missing."""
    primary = diagnosis.primary if diagnosis is not None else None
    return primary is not None and primary.cause.name.startswith("launch/")


def _diagnose(files: list[Path], labels: Mapping[str, ProcessLabel]) -> Diagnosis:
    from cuwhy.diagnosing import diagnose_run

    return diagnose_run(files, sources=["."], labels=labels)


def _shows_cuda_error(text: bytes) -> bool:
    from cuwhy.model.cuda import CUDA_ERRORS

    lower = text.lower()
    return _CUDA_ERROR.search(text) is not None or any(
        len(words) >= _TELLING and words.lower().encode() in lower for _, words in CUDA_ERRORS.values()
    )


def _dumps_off(text: bytes) -> str:
    """The line in which the driver says that it writes no core dumps, empty when there is none."""
    for match in _CORE_DUMP.finditer(text):
        begin = max(text.rfind(b"\n", 0, match.start()) + 1, match.start() - _MAX_LINE)
        end = text.find(b"\n", match.end(), match.end() + _MAX_LINE)
        line = text[begin : end if end >= 0 else match.end() + _MAX_LINE]
        if _DUMPS_OFF.search(line):
            return line.decode("utf-8", "replace").strip()
    return ""


def _log_files(seen: Observed, notes: list[str]) -> list[Path]:
    files = []
    for name, data in seen.logs.items():
        if not data:
            continue
        path = seen.folder / f"{name}.log"
        try:
            path.write_bytes(data if log_kind(data) else b"[binary]\n" + data.replace(b"\0", b"?"))
        except OSError as error:
            notes.append(f"the copy of {name} could not be written: {error.strerror}")
            continue
        files.append(path)
    return files


def _launch_files(seen: Observed) -> list[Path]:
    """The launch log of the process that failed first; of all where no dump says which."""
    names = list(seen.launches)
    if seen.dumps and seen.dumps[0].pid is not None:
        names = [name for name in names if name.split(".")[1].split("-")[0] == str(seen.dumps[0].pid)]
    files = []
    for name in names[:_MAX_LAUNCH_LOGS]:
        path = seen.folder / name
        try:
            path.write_bytes(seen.launches[name])
        except OSError:
            continue
        files.append(path)
    return files


def _without_dump(seen: Observed) -> list[str]:
    """Say why there may be no dump, and what would tell more."""
    text = b"\n".join(data[-_SEARCHED_BYTES:] for data in seen.logs.values())
    if off := _dumps_off(text):
        return [f'the driver wrote no core dump: "{off[:200]}"; run without the profiler or debugger']
    if seen.ended:
        return []
    if _NO_GPU.search(text):
        return ["the program found no GPU that it can use; `cuwhy doctor` says what this machine has"]
    if _shows_cuda_error(text):
        notes = [
            "the output shows a CUDA error, but no GPU core dump was written: the error came from a call or a "
            "launch that was refused, not from a running kernel; or a profiler was attached (CUPTI switches core "
            "dumps off)"
        ]
        if _PROFILER.search(text):
            notes.append("the output speaks of a profiler: run once without it")
        notes.append(
            "`compute-sanitizer --tool memcheck --xml --save report.xml COMMAND` and `cuwhy diagnose report.xml` "
            "would tell more"
        )
        return notes
    if seen.code < 0:
        name = (
            signal.Signals(-seen.code).name if -seen.code in list(signal.Signals) else f"signal {-seen.code}"
        )
        if -seen.code in _FAULT_SIGNALS:
            return [
                f"{name} without a GPU core dump: the fault is on the CPU; "
                "PYTHONFAULTHANDLER=1, or gdb on the core file, shows where"
            ]
        if -seen.code == signal.SIGKILL:
            return [
                "SIGKILL came from outside: often the out-of-memory killer (`dmesg` says so) or a scheduler"
            ]
        if -seen.code == signal.SIGABRT:
            return [
                "SIGABRT without a GPU core dump: an assertion or exception on the CPU; see the last lines"
            ]
        return []
    return [
        f"exit code {seen.code}, but no GPU core dump and no CUDA error in the output: the GPU reports no failure "
        "(docs/run.md says what core dumps cannot see)"
    ]
