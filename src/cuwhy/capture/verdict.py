"""What a run left -> the diagnosis of its first failure, and sentences on what is not in it."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from cuwhy.capture.keep import log_kind
from cuwhy.capture.run import Observed
from cuwhy.model.diagnosis import Diagnosis
from cuwhy.model.errors import InputError

_NAMED_LATER = 8
# The driver's words differ from version to version; that it speaks of core dumps does not.
_DUMPS_OFF = re.compile(
    rb"[^\n]{0,200}core ?dump[^\n]{0,200}(?:CUPTI|profil|debugger|disabled|not supported|not be generated)[^\n]{0,200}",
    re.IGNORECASE,
)
_PROFILER = re.compile(rb"torch\.profiler|CUPTI|Kineto|nsys|ncu ", re.IGNORECASE)
_CUDA_ERROR = re.compile(
    rb"CUDA (?:error|failure|runtime error)|\bcudaError[A-Z]|\bCUDA_ERROR_[A-Z]|an illegal memory access",
    re.I,
)
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
    # The dump of the process that failed first; what failed after it is most likely its consequence.
    first = [dump.path for dump in seen.dumps[:1]]
    for files in ([*first, *logs], first, logs):
        if not files:
            continue
        try:
            diagnosis = _diagnose(files)
            break
        except InputError as error:
            if str(error) not in notes:
                notes.append(str(error))
    if len(seen.dumps) > 1:
        later = [dump.label for dump in seen.dumps[1:]]
        more = f" and {len(later) - _NAMED_LATER} more" if len(later) > _NAMED_LATER else ""
        notes.append(
            f"{seen.dumps[0].label} failed first; core dumps written later: "
            + "; ".join(later[:_NAMED_LATER])
            + more
        )
    if not seen.dumps and (seen.code or seen.ended):
        notes += _without_dump(seen)
    return Verdict(diagnosis, tuple(notes))


def _diagnose(files: list[Path]) -> Diagnosis:
    from cuwhy.diagnosing import diagnose

    return diagnose(files, sources=["."])


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


def _without_dump(seen: Observed) -> list[str]:
    """Say why there may be no dump, and what would tell more."""
    text = b"\n".join(seen.logs.values())
    off = _DUMPS_OFF.search(text)
    if off is not None:
        words = off[0].decode("utf-8", "replace").strip()
        return [f'the driver wrote no core dump: "{words[:200]}"; run without the profiler or debugger']
    if seen.ended:
        return []
    if _CUDA_ERROR.search(text):
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
        f"exit code {seen.code} without a GPU core dump or a CUDA error in the output: no kernel failed in a way "
        "that the GPU reports; a store to address 0 is not seen while core dumps are on, so if the run without "
        "cuwhy fails with a CUDA error, memcheck would tell"
    ]
