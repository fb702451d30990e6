"""Files about one failure -> diagnosis: read, locate, match, rank."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cuwhy.case.labels import ProcessLabel, read_label
from cuwhy.causes.catalogue import UNKNOWN, catalogue
from cuwhy.causes.confidence import confidence_of
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.reruns import pattern_of
from cuwhy.locate.places import NO_SASS, CodeMap
from cuwhy.locate.recorded import (
    allocation_of,
    describe,
    handed_out_again,
    host_frame,
    record_of,
    recorded_facts,
)
from cuwhy.locate.sources import SourceBook
from cuwhy.locate.surroundings import excerpts, listings, timeline
from cuwhy.locate.tensors import whereabouts, with_tensors
from cuwhy.model.diagnosis import Artefact, Diagnosis, Finding, Next, Role
from cuwhy.model.errors import InputError
from cuwhy.model.facts import Fact, Fault, Machine, Origin, Rerun, SanitizerFault, WaitKind
from cuwhy.read.launchlog import LaunchLog
from cuwhy.read.recognize import recognize
from cuwhy.read.tensors import MemoryMap

#: Largest file that is opened; a full dump with memory can be far larger and must be slimmed first.
MAX_FILE_BYTES = 4 << 30
#: Up to here a file is copied into memory: a map of a file that somebody cuts off meanwhile ends in SIGBUS.
#: One copy and what the readers make of it stay below 300 MB.
_MAX_TEXT_BYTES = 240 << 20
_MAX_FILES = 64
_MAX_FINDINGS = 50
_MAX_RECYCLED, _MAX_RECORDS = 16, 256
#: Processes that failed later and are looked at.
_MAX_LATER = 8

_CAPTURE = (
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_FILE=core.%p.nvcudmp CUDA_COREDUMP_GENERATION_FLAGS="
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"
)


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    facts: list[Fact] = field(default_factory=list)
    artefacts: list[Artefact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    listings: dict[str, str] = field(default_factory=dict)
    dumps: list[tuple[str, bytes | memoryview]] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    logs: list[LaunchLog] = field(default_factory=list)
    maps: list[MemoryMap] = field(default_factory=list)
    profiles: list[tuple[str, bytes | memoryview]] = field(default_factory=list)
    labels: dict[str, ProcessLabel] = field(default_factory=dict)
    later: list[Finding] = field(default_factory=list)


def diagnose(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    sources: Iterable[str | os.PathLike[str]] = (),
) -> Diagnosis:
    """Diagnose one failure from the files it left behind.

    Args:
        paths: GPU core dumps, Compute Sanitizer reports (XML or text), Nsight Compute reports, captured
            program output, ``.cuwhy`` cases (file or folder), in any order; all about one failure.
            Kinds are told by content, not by name.
        sources: folders with the program's source files, for parameter names and source
            lines; paths inside the evidence are never opened.

    Returns:
        The findings, best first; none when the files show no failure.

    Raises:
        InputError: when a file cannot be read or is none of these.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    return diagnose_run([Path(p) for p in paths], sources=sources)


def diagnose_run(
    files: Sequence[Path],
    *,
    sources: Iterable[str | os.PathLike[str]] = (),
    labels: Mapping[str, ProcessLabel] | None = None,
) -> Diagnosis:
    """Diagnose as :func:`diagnose`, with the process and time of core dumps by file name.

    Raises:
        InputError: when a file cannot be read or is none that has a reader.
    """
    if not files:
        raise InputError(
            "no file to diagnose", hint="give a core dump, a sanitizer report, a log or a .cuwhy case"
        )
    if len(files) > _MAX_FILES:
        raise InputError(
            f"{len(files)} files; at most {_MAX_FILES} about one failure", hint="name those of one run"
        )
    reading = _Reading(labels=dict(labels or {}))
    with contextlib.ExitStack() as stack:
        for path in files:
            for name, data, kind in _open(path, stack, reading.labels):
                _read(reading, name, data, kind)
        folders = tuple(Path(folder) for folder in sources)
        for folder in folders:
            if not folder.is_dir():
                raise InputError(
                    f"{folder}: no folder with sources", hint="--source takes an existing folder"
                )
        book = SourceBook(reading.sources, folders)
        _read_dumps(reading, book)
        for name, data in reading.profiles:
            from cuwhy.profiles.measured import profile_facts

            reading.facts += profile_facts(data, name, book)
    reading.facts = with_tensors(reading.facts, reading.maps)
    reading.facts += recorded_facts(reading.facts, reading.logs)
    reading.facts += _ordered_launches(reading)
    diagnosis = conclude(reading.facts, reading.artefacts, reading.notes)
    findings = (*diagnosis.findings, *reading.later)
    return replace(
        diagnosis,
        findings=findings,
        excerpts=excerpts(findings, book),
        listings=listings(findings, book),
        timeline=timeline(diagnosis.primary, reading.logs),
    )


def _ordered_launches(reading: _Reading) -> list[Fact]:
    """The launches whose order matters, and memory that was handed out again around them."""
    pattern = pattern_of(fact for fact in reading.facts if isinstance(fact, Rerun))
    # Numbers count in each process; the one that launched most is the one that was bisected.
    log = max(reading.logs, key=lambda log: log.launch_count, default=None)
    if log is None or not (pattern.pair or pattern.cured_by("launch-blocking")):
        return []
    numbers = {pattern.pair.earlier, pattern.pair.later} - {0} if pattern.pair is not None else set()
    again = handed_out_again(log.allocations)[:_MAX_RECYCLED]
    for old, new in again if pattern.pair is None else ():
        numbers |= {r.number for r in log.launches if r.microseconds <= (old.freed or 0)} - {0}
        numbers |= {r.number for r in log.launches if r.microseconds >= new.microseconds} - {0}
    records = [record for record in log.launches if record.number in numbers]
    found: list[Fact] = list(records[-_MAX_RECORDS:])
    found += dict.fromkeys(block for pair in again for block in pair)
    return [fact for fact in found if fact not in reading.facts]


# -- reading ---------------------------------------------------------------------


def _open(
    path: Path, stack: contextlib.ExitStack, labels: dict[str, ProcessLabel]
) -> Iterator[tuple[str, bytes | memoryview, str]]:
    """Yield (name, content, kind) of a file, or of each artefact of a case."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            yield from _open_case(path, stack, labels)
            return
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                f"{path}: not a regular file", hint="save what it gives into a file and diagnose that"
            )
        if status.st_size == 0:
            raise InputError(f"{path}: the file is empty", hint="was the program killed before it wrote?")
        if status.st_size > MAX_FILE_BYTES:
            raise InputError(
                f"{path}: {status.st_size / 2**30:.1f} GiB is more than {MAX_FILE_BYTES >> 30} GiB",
                hint="dump without memory contents (CUDA_COREDUMP_GENERATION_FLAGS)",
            )
        data: bytes | memoryview
        with open(path, "rb", opener=_without_waiting) as file:
            head = file.read(4096)
            if recognize(head) == "case":
                yield from _open_case(path, stack, labels)
                return
            if status.st_size <= _MAX_TEXT_BYTES:
                file.seek(0)
                # No further than it was long: a log may still be growing.
                data = file.read(status.st_size)
            else:
                # Views of the map outlive this function (facts do not): the garbage collector closes it.
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path}: {reason}", hint="check the path and its permissions") from error
    yield path.name, data, recognize(data)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file that may have become a fifo since it was looked at."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _open_case(
    path: Path, stack: contextlib.ExitStack, labels: dict[str, ProcessLabel]
) -> Iterator[tuple[str, bytes | memoryview, str]]:
    from cuwhy.case import open_case

    case = stack.enter_context(open_case(path))
    for entry in case.artefacts:
        if (label := read_label(entry.note)) is not None:
            labels[entry.path] = label
        if entry.kind in ("source", "sass"):
            yield entry.path, case.read(entry.path), entry.kind
            continue
        data = case.read(entry.path)
        # The manifest's word is not trusted: an artefact is what its content says.
        yield entry.path, data, recognize(data) if data else "log"


def _read(reading: _Reading, name: str, data: bytes | memoryview, kind: str) -> None:
    facts: Sequence[Fact] = ()
    problem = ""
    if kind == "coredump":
        reading.dumps.append((name, data))
    elif kind in ("sanitizer-xml", "sanitizer-text", "log"):
        if len(data) > _MAX_TEXT_BYTES:
            raise InputError(
                f"{name}: {len(data) >> 20} MB of text is more than {_MAX_TEXT_BYTES >> 20} MB",
                hint="cut it to the part around the error, for example with `tail -n 100000`",
            )
        from cuwhy.read.log import read_log
        from cuwhy.read.sanitizer import read_sanitizer_text, read_sanitizer_xml

        reader = {
            "sanitizer-xml": read_sanitizer_xml,
            "sanitizer-text": read_sanitizer_text,
            "log": read_log,
        }[kind]
        # Text reports usually stand in a program's output: the log reader sees both.
        facts = read_log(bytes(data), name) if kind == "sanitizer-text" else reader(bytes(data), name)
    elif kind == "reruns":
        from cuwhy.read.reruns import read_reruns

        facts = read_reruns(data, name)
    elif kind == "numerics":
        from cuwhy.read.numerics import read_numerics

        facts = read_numerics(data, name)
    elif kind == "sass":
        symbol, _, text = bytes(data).decode("utf-8", "replace").partition("\n")
        reading.listings[symbol.removeprefix("# cuwhy sass ").strip()] = text
    elif kind == "source":
        reading.sources[name.rsplit("/", 1)[-1]] = bytes(data).decode("utf-8", "replace")
    elif kind == "launchlog":
        from cuwhy.read.launchlog import read_launchlog

        reading.logs.append(read_launchlog(bytes(data), name))
    elif kind == "launchlog-raw":
        raise InputError(
            f"{name}: the launch recorder's own file",
            hint="the .json in the case that `cuwhy run` wrote has the same",
        )
    elif kind == "tensors":
        from cuwhy.read.tensors import read_tensors

        reading.maps.append(read_tensors(data, name))
    elif kind == "ncu-report":
        reading.profiles.append((name, data))
    elif kind == "pickle":
        raise InputError(f"{name}: a Python pickle", hint="it is never opened: a pickle can run code")
    elif kind == "case":
        raise InputError(f"{name}: a case inside a case", hint="extract it first")
    else:
        raise InputError(
            f"{name}: neither a GPU core dump, a sanitizer report, a text log nor a .cuwhy case",
            hint="see `cuwhy diagnose --help` for what can be read",
        )
    reading.facts += facts
    reading.artefacts.append(Artefact(name, kind, len(data), hashlib.sha256(data).hexdigest(), problem))


def _read_dumps(reading: _Reading, book: SourceBook) -> None:
    """Read the core dumps; of several processes the first failure counts, the others follow from it."""
    labelled = [dump for dump in reading.dumps if dump[0] in reading.labels]
    faults = [dump for dump in labelled if not reading.labels[dump[0]].asked]
    faults.sort(key=lambda dump: reading.labels[dump[0]].written)
    # Without labels nothing says which came first; dumps that were asked for are of one moment.
    dumps = faults[:1] if faults and len(labelled) == len(reading.dumps) else reading.dumps
    for name, data in dumps:
        facts, notes = read_coredump(data, name, reading.listings, book)
        reading.facts += facts
        reading.notes += [n for n in notes if n not in reading.notes]
    if len(dumps) == len(reading.dumps):
        return
    first = reading.labels[faults[0][0]]
    rest = [dump for dump in reading.dumps if dump is not faults[0]]
    rest.sort(key=lambda dump: reading.labels[dump[0]].written)
    names = []
    for name, data in rest[:_MAX_LATER]:
        label = reading.labels[name]
        after = f"{max(0.0, label.written - first.written):.1f} s later"
        names.append(f"{label.process} ({after})")
        try:
            facts, _ = read_coredump(data, name, reading.listings, book)
        except InputError:
            continue
        primary = conclude(facts).primary
        if primary is not None:
            sentence = f"{label.process}, {after}: {primary.sentence}"
            reading.later.append(replace(primary, role=Role.CASCADE, sentence=sentence))
    more = f" and {len(rest) - _MAX_LATER} more" if len(rest) > _MAX_LATER else ""
    reading.notes.append(
        f"{first.process} failed first; core dumps written later: {'; '.join(names)}{more}: most likely its consequences, "
        "or the same fault in every rank"
    )


def read_coredump(
    data: bytes | memoryview,
    name: str,
    listings: dict[str, str] | None = None,
    sources: SourceBook | None = None,
) -> tuple[list[Fact], list[str]]:
    """Return the facts of one core dump, with places, and notes on what could not be told.

    Raises:
        InputError: when the dump is damaged.
    """
    from cuwhy.locate.faults import dump_faults
    from cuwhy.locate.launches import dump_launches
    from cuwhy.locate.waits import dump_waits
    from cuwhy.read.coredump import CoreDump

    dump = CoreDump(data, name)
    code = CodeMap(dump, listings, sources)
    try:
        launches = dump_launches(dump, code, name)
        facts: list[Fact] = []
        if dump.devices:
            device = dump.devices[0]
            facts.append(
                Machine(
                    device.name,
                    device.architecture,
                    device.sm_count,
                    dump.driver,
                    dump.cuda,
                    Origin(name, ".cudbg.devtbl"),
                )
            )
        facts += [launch for _, launch in launches.values()]
        faults = dump_faults(dump, launches, code, name)
        facts += faults
        if not faults:
            facts += dump_waits(dump, launches, code, name)
        _note_missing_lines(code, faults)
        return facts, [*dump.problems, *code.notes]
    finally:
        code.close()


def _note_missing_lines(code: CodeMap, faults: Sequence[Fault]) -> None:
    placed = [f for f in faults if f.place is not None]
    if placed and not any(f.place.frames for f in placed if f.place is not None):
        kernel = next((f.launch.short for f in placed if f.launch is not None), "the kernel")
        code.note(f"`{kernel}` was built without line tables: `nvcc -lineinfo` would give the source line")


# -- conclusions -------------------------------------------------------------------


def conclude(
    facts: Sequence[Fact], artefacts: Sequence[Artefact] = (), notes: Sequence[str] = ()
) -> Diagnosis:
    """Match facts against the catalogue and rank what fits."""
    evidence = Evidence.of(facts)
    findings: list[Finding] = []
    for entry in catalogue():
        if not entry.cause.name.startswith(UNKNOWN):
            findings.extend(entry.match(evidence))
    findings = _merged(_ranked(findings))
    if not any(f.role is Role.PRIMARY for f in findings):
        for entry in catalogue():
            if entry.cause.name.startswith(UNKNOWN):
                findings.extend(entry.match(evidence))
    findings = [
        replace(_recorded(f, evidence), confidence=confidence_of(f.cause.name))
        for f in findings[:_MAX_FINDINGS]
    ]
    return Diagnosis(
        findings=tuple(findings),
        facts=tuple(facts),
        artefacts=tuple(artefacts),
        open=tuple(_open_questions(evidence, findings, any(n.startswith(NO_SASS) for n in notes))),
        notes=tuple(notes),
    )


def _recorded(finding: Finding, evidence: Evidence) -> Finding:
    """Add what the launch recorder saw: the host line of the very launch, and whose memory it was."""
    record = record_of(finding.launch, evidence.records) if finding.launch is not None else None
    if record is not None and finding.launch is not None:
        frame = host_frame(record, finding.launch)
        exact = record.number == finding.launch.grid_id
        how = f"launch {record.number}" if exact else "the last launch of this kernel with these sizes"
        if "captured" in record.flags:
            how = "the launch that was captured into a graph"
        if frame is not None:
            where = f"{frame.short}{' in ' + frame.function if frame.function else ''}"
            finding = replace(
                finding, host=frame, why=(*finding.why, f"the launch recorder saw {how} come from {where}")
            )
    fault = next((fact for fact in finding.facts if isinstance(fact, Fault)), None)
    if fault is not None and fault.address is not None:
        if text := whereabouts(fault.address, finding.launch):
            finding = replace(finding, details=(*finding.details, ("tensor", text)))
            if fault.address.target is not None or fault.address.beyond is not None:
                return finding
        block = allocation_of(fault, evidence.allocations)
        if block is not None:
            finding = replace(
                finding, details=(*finding.details, ("memory", describe(block, fault.address.value)))
            )
    return finding


def _ranked(findings: list[Finding]) -> list[Finding]:
    """Order findings: primary first, then by weight, then by how many threads they hold."""
    order = {Role.PRIMARY: 0, Role.LATENT: 1, Role.CASCADE: 2}

    def key(finding: Finding) -> tuple[int, int, int]:
        return (
            order[finding.role],
            -finding.weight,
            -(finding.threads.count if finding.threads is not None else 0),
        )

    return sorted(findings, key=key)


def _merged(findings: list[Finding]) -> list[Finding]:
    """Fold a checker's finding into the core dump's at the same line: the dump knows the arguments."""
    kept: list[Finding] = []
    for finding in findings:
        if all(isinstance(fact, SanitizerFault) for fact in finding.facts) and finding.place is not None:
            position = next(
                (
                    i
                    for i, other in enumerate(kept)
                    if other.cause.name == finding.cause.name and _same_spot(other, finding)
                ),
                -1,
            )
            if position >= 0:
                other = kept[position]
                kept[position] = replace(
                    other, facts=(*other.facts, *finding.facts), host=other.host or finding.host
                )
                continue
        kept.append(finding)
    return kept


def _same_spot(one: Finding, two: Finding) -> bool:
    if not any(isinstance(fact, Fault) for fact in one.facts) or one.place is None or two.place is None:
        return False
    frame = one.place.user
    return (
        frame is not None
        and frame.file is not None
        and any((f.file, f.line) == (frame.file, frame.line) for f in two.place.frames)
    )


def _open_questions(evidence: Evidence, findings: Sequence[Finding], no_sass: bool) -> Iterator[Next]:
    """What would settle what the evidence leaves open."""
    named = [f for f in findings if not f.cause.name.startswith(UNKNOWN)]
    unknown_address = any(
        f.address is None and f.access in ("load", "store", "atomic") for f in evidence.faults
    )
    if no_sass and (unknown_address or not named):
        yield Next(
            "pip install 'cuwhy[sass]' and diagnose again",
            "with the instructions the address, or what the threads wait for, can be told from this very dump",
            "a 5 MB download",
        )
        return
    if any(f.cause.name == "memory/host-index-out-of-range" and f.misleading for f in named):
        yield Next(
            "run it again with CUDA_LAUNCH_BLOCKING=1",
            "the Python traceback then ends at the very line that used the bad index",
            "about twice the run time",
        )
    if not named and any(event.kind == "arrived" for event in evidence.numerics):
        yield Next(
            "run it again with `cuwhy numerics --poison`",
            "a NaN that no operation made is in the data, comes from a kernel outside of PyTorch, or stands in memory "
            "that nothing has written; filled memory tells the last apart",
            "the same again",
        )
    if not named and evidence.errors and not evidence.faults:
        yield Next(
            f"run the program with {_CAPTURE}",
            "an error code names no kernel and no line; the GPU core dump does",
            "nothing while it runs, 0.2 s when it fails",
        )
    if not named and evidence.faults:
        yield Next(
            "run it under `compute-sanitizer --tool memcheck --xml --save report.xml` and add report.xml",
            "memcheck knows the allocations; the core dump knows only the address",
            "7 s for a program of 6 s, narrowed to the kernel with --kernel-name",
        )
    if named and unknown_address and not evidence.reports:
        yield Next(
            "add a memcheck report (`compute-sanitizer --tool memcheck --xml --save report.xml`)",
            "the faulting address cannot be recomputed from this dump",
            "the program's run time and a few seconds",
        )
    if any(w.kind in (WaitKind.RUNNING, WaitKind.MEMORY) for w in evidence.waits) and not named:
        yield Next(
            "take a second dump some seconds later and compare",
            "one dump cannot tell slow from stuck",
            "0.3 s, and it ends the program",
        )
