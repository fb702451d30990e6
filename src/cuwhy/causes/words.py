"""Pieces of sentences that several rules say in the same way."""

from __future__ import annotations

from cuwhy.causes.evidence import Evidence
from cuwhy.model.cuda import EXCEPTIONS, describe_error
from cuwhy.model.facts import Address, Dim3, Fault, Launch, SanitizerFault, Threads, Wait

_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def amount(count: int) -> str:
    """Return "4,294,967,296 bytes (4.0 GiB)"; exact first."""
    size = abs(count)
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size:,} bytes ({size / unit:.1f} {name})"
    return f"{size:,} byte" if size == 1 else f"{size:,} bytes"


def plural(count: int, word: str) -> str:
    """Return "1 thread" or "2,048 threads"."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def index(value: Dim3 | None) -> str:
    """Return "(8,0,0)"."""
    return f"({value[0]},{value[1]},{value[2]})" if value is not None else "(?)"


def raised(fault: Fault) -> str:
    """Return "31 threads in 1 warp of 1 block: threads 1 to 31 hold exception 4 (…): …"."""
    return f"{counts(fault.threads)} {hold(fault.threads)} {exception_fact(fault)}"


def who(threads: Threads) -> str:
    """Return "thread (0,0,0) of block (8,0,0)" for the first of them."""
    if threads.first_thread is None:
        return "a thread"
    return f"thread {index(threads.first_thread)} of block {index(threads.first_block)}"


def verb(access: str) -> str:
    """Return "reads" for a load, and so on."""
    table = {"load": "reads", "read": "reads", "store": "writes", "write": "writes", "reduction": "updates"}
    return table.get(access, "atomically updates" if access == "atomic" else "accesses")


def argument_label(launch: Launch | None, position: int | None) -> str:
    """Return "`in` (float const*)" or "argument 0 (float const*)"."""
    if launch is None or position is None or position >= len(launch.arguments):
        return "a pointer"
    argument = launch.arguments[position]
    about = [argument.type] if argument.type and argument.type not in ("u64", "b64") else []
    if argument.target is not None and argument.target.tensor is not None:
        about.append(f"tensor {argument.target.tensor.text}")
    kind = f" ({', '.join(about)})" if about else ""
    return f"`{argument.name}`{kind}" if argument.name else f"argument {position}{kind}"


def offset_from_base(address: Address, launch: Launch | None) -> str:
    """Return "4,294,967,296 bytes (4.0 GiB) past the start of argument 0 (float const*)", or ''."""
    for distance in address.distances:
        if distance.argument == address.base:
            label = argument_label(launch, address.base)
            if "+" in distance.label:
                label = f"the pointer at {distance.label}"
            if distance.bytes < 0:
                return f"{amount(distance.bytes)} before the start of {label}"
            return f"{amount(distance.bytes)} past the start of {label}"
    return ""


def address_rows(fault: Fault) -> list[tuple[str, str]]:
    """Rows of the values block that say the address and how it is known."""
    address = fault.address
    if address is None:
        return []
    how = (
        "base register read from the dump"
        if address.how == "registers"
        else "recomputed from arguments, block and thread: the load overwrote its base register"
        if fault.access == "load"
        else "recomputed from arguments, block and thread"
    )
    rows = [("address", f"{address.value:#x} ({how})")]
    if address.low != address.high:
        rows.append(("addresses seen", f"{address.low:#x} to {address.high:#x}"))
    if address.width > 1 and address.space in ("global", "generic"):
        rest = address.misaligned_by
        rows.append(
            ("alignment", f"{rest} modulo {address.width}" if rest else f"a multiple of {address.width}")
        )
    base = offset_from_base(address, fault.launch)
    if base:
        rows.append(("distance", base))
    if address.known_as:
        rows.append(("constant", address.known_as))
    return rows


def report_rows(report: SanitizerFault) -> list[tuple[str, str]]:
    """Rows of the values block for a sanitizer fault."""
    rows = []
    if report.address is not None:
        span = "" if report.low == report.high else f" (up to {report.high:#x})"
        rows.append(("address", f"{report.address:#x}{span}"))
    allocation = report.allocation
    if allocation is not None:
        rows.append(
            (
                "nearest allocation",
                f"{allocation.address:#x}, {amount(allocation.size)}; the access is "
                + (
                    f"{amount(allocation.distance)} {allocation.side} it"
                    if allocation.side in ("before", "after")
                    else "inside it"
                ),
            )
        )
    rows.append(("records", plural(report.records, "record")))
    return rows


def misleading(evidence: Evidence, fault: Fault, truth: str) -> str:
    """Return what the runtime says and why it is wrong, for a fault that it names badly."""
    code = evidence.said(fault)
    if not code:
        return ""
    if evidence.was_said():
        return f"the runtime said {describe_error(code)}; {truth}"
    # Warps fault with different codes; whichever the driver saw first decides.
    more = sorted({EXCEPTIONS[c].runtime for c in fault.alternatives if c in EXCEPTIONS} - {code})
    text = " or ".join(describe_error(c) for c in (code, *more))
    return f"the runtime will have said {text}; {truth}"


def exception_fact(fault: Fault) -> str:
    """Return "exception 14 (WARP_ILLEGAL_ADDRESS): an address that is not mapped"."""
    kind = EXCEPTIONS.get(fault.exception)
    if kind is None:
        return f"exception {fault.exception}"
    text = f"exception {kind.code} (CUDBG_EXCEPTION_{kind.name}): {kind.plain}"
    others = [EXCEPTIONS[c] for c in fault.alternatives if c in EXCEPTIONS]
    if others:
        text += "; some " + ", ".join(f"{o.code} ({o.name})" for o in others)
    return text


def counts(threads: Threads) -> str:
    """Return "2,048 threads in 64 warps of 16 blocks: all threads of every block from 8 on"."""
    text = plural(threads.count, "thread")
    if threads.warps:
        text += f" in {plural(threads.warps, 'warp')}"
    if threads.blocks:
        text += f" of {plural(threads.blocks, 'block')}"
    return f"{text}: {threads.pattern}" if threads.pattern else text


def kernel_of(fact: Fault | Wait) -> str:
    """Return the short name of the kernel, "the kernel" when it has none."""
    return fact.launch.short if fact.launch is not None else "the kernel"


def hold(threads: Threads) -> str:
    """Return "holds" for one thread and "hold" for more."""
    return "holds" if threads.count == 1 else "hold"
