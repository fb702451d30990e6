"""Names for the addresses of a core dump, out of what the PyTorch hook wrote in the same process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from cuwhy.model.facts import Address, Beyond, BlockFact, Fact, Fault, Launch, Target, TensorFact, Wait
from cuwhy.model.place import Frame
from cuwhy.read.tensors import MemoryMap

_MAX_FACTS = 200


def with_tensors(facts: Sequence[Fact], maps: Sequence[MemoryMap]) -> list[Fact]:
    """Return the facts with what lies at pointer arguments and faulting addresses, and those tensors and blocks."""
    if not maps:
        return list(facts)
    found: dict[TensorFact | BlockFact, None] = {}
    named: list[Fact] = []
    for fact in facts:
        if isinstance(fact, Launch):
            fact = _launch(fact, maps, found)
        elif isinstance(fact, (Fault, Wait)) and fact.launch is not None:
            launch = _launch(fact.launch, maps, found)
            memory = _map_of(launch, maps)
            address = fact.address
            if address is not None and memory is not None:
                address = _address(address, launch, memory, found)
            fact = replace(fact, launch=launch, address=address)
        named.append(fact)
    return named + list(found)[:_MAX_FACTS]


def _map_of(launch: Launch, maps: Sequence[MemoryMap]) -> MemoryMap | None:
    """The memory of the process whose dump this is, as far as the dump's name tells."""
    numbers = {int(text) for text in re.findall(r"[0-9]{1,10}", launch.origin.artefact.rsplit("/", 1)[-1])}
    own = [memory for memory in maps if memory.process in numbers]
    if len(own) == 1:
        return own[0]
    return maps[0] if len(maps) == 1 else None


def _launch(launch: Launch, maps: Sequence[MemoryMap], found: dict[TensorFact | BlockFact, None]) -> Launch:
    memory = _map_of(launch, maps)
    if memory is None:
        return launch
    arguments = []
    for argument in launch.arguments:
        value = argument.value
        # An integer without a type may be a pointer; a real one falls into memory that is known.
        if argument.is_pointer is not False and argument.size == 8 and isinstance(value, int) and value:
            target = memory.target(value)
            _note(target, found)
            argument = replace(argument, target=target)
        arguments.append(argument)
    return replace(launch, arguments=tuple(arguments))


def _address(
    address: Address, launch: Launch, memory: MemoryMap, found: dict[TensorFact | BlockFact, None]
) -> Address:
    if address.space not in ("global", "generic", ""):
        return address
    target = memory.target(address.value)
    _note(target, found)
    return replace(address, target=target, beyond=_beyond(address, launch))


def _beyond(address: Address, launch: Launch) -> Beyond | None:
    target = _base(address, launch)
    tensor = target.tensor if target is not None else None
    block = target.block if target is not None else None
    if tensor is not None:
        name, start, size, width = tensor.name, tensor.pointer, tensor.bytes, tensor.itemsize
    elif block is not None and block.in_use:
        name, start, size, width = "", block.address, block.requested, address.width
    else:
        return None
    before, after = start - address.value, address.value - (start + size)
    if before <= 0 and after < 0:
        return None
    side, distance = ("before", before) if before > 0 else ("after", after)
    return Beyond(name, side, distance, distance // width if width else 0)


def _note(target: Target | None, found: dict[TensorFact | BlockFact, None]) -> None:
    if target is not None:
        for fact in (target.tensor, target.block):
            if fact is not None:
                found.setdefault(fact)


# -- words -----------------------------------------------------------------------------


def describe(target: Target) -> str:
    """Return what lies at an address: "`x` float32 [256, 256] (block of 262,144 bytes, allocated at …)"."""
    tensor, block = target.tensor, target.block
    if tensor is not None and (block is None or not tensor.device.startswith("cuda")):
        return tensor.text
    text = f"block of {block.requested if block.in_use else block.size:,} bytes" if block is not None else ""
    if block is not None and block.in_use:
        text += _at("allocated", block.allocated)
    elif block is not None:
        state = "waited for another stream" if "pending" in block.state else "was free"
        text += f" that {state} when the error was noticed"
    if target.earlier:
        uses = dict.fromkeys(_use(block) for block in target.earlier)
        text += ("; " if text else "memory ") + "used earlier: " + "; ".join(uses)
    if tensor is None:
        return text
    return f"{tensor.text} ({text})" if text else tensor.text


def _use(block: BlockFact) -> str:
    made, freed = _at("allocated", block.allocated), _at("freed", block.freed)
    return f"{block.size:,} bytes{made}{freed}"


def _at(verb: str, frames: tuple[Frame, ...]) -> str:
    frame = next(
        (f for f in frames if f.file is not None and not f.is_library), frames[0] if frames else None
    )
    if frame is None:
        return ""
    return f", {verb} at {frame.short}" + (f" in {frame.function}" if frame.function else "")


def whereabouts(address: Address, launch: Launch | None) -> str:
    """Return where a faulting address lies with respect to tensors, empty when nothing is known of them."""
    parts = []
    beyond = address.beyond
    if beyond is not None:
        side = "past the end of" if beyond.side == "after" else "before the start of"
        elements = f"{beyond.elements:,} element{'' if beyond.elements == 1 else 's'}"
        owner = f"`{beyond.tensor}`" if beyond.tensor else "what its pointer belongs to"
        parts.append(f"{beyond.bytes:,} bytes ({elements}) {side} {owner}")
    base = _base(address, launch)
    if base is not None and base.tensor is None:
        parts.append(f"computed from a pointer to a {describe(base)}".replace("a memory", "memory"))
    target = address.target
    if target is not None:
        block = target.block
        if target.tensor is not None and (beyond is None or target.tensor.name != beyond.tensor):
            parts.append(f"inside {describe(target)}")
        elif block is not None and not block.in_use:
            parts.append(f"in a {describe(target)}")
        elif block is not None:
            own = base is not None and base.block == block
            parts.append("inside its own block" if own else f"in a {describe(target)}")
        else:
            parts.append(f"in {describe(target)}")
    elif beyond is not None or _any_target(launch):
        parts.append("in no memory of PyTorch's allocator")
    return ", ".join(parts)


def _base(address: Address, launch: Launch | None) -> Target | None:
    if launch is None or address.base is None or address.base >= len(launch.arguments):
        return None
    return launch.arguments[address.base].target


def _any_target(launch: Launch | None) -> bool:
    return launch is not None and any(argument.target is not None for argument in launch.arguments)
