"""Memory that was handed out again, against its definition over every pair."""

from __future__ import annotations

import random
import time

from cuwhy.locate.recorded import handed_out_again
from cuwhy.model.facts import DriverAllocation


def history(seed: int, count: int) -> list[DriverAllocation]:
    """A pool as a driver keeps it: what is alive never overlaps."""
    dice = random.Random(seed)
    alive: list[DriverAllocation] = []
    done: list[DriverAllocation] = []
    for step in range(count):
        if alive and dice.random() < 0.5:
            block = alive.pop(dice.randrange(len(alive)))
            done.append(
                DriverAllocation(
                    block.address,
                    block.size,
                    0,
                    block.stream,
                    (),
                    block.microseconds,
                    10 * step,
                    (),
                    block.process,
                )
            )
            continue
        process, size = dice.randrange(2), dice.choice((1, 2, 5)) * 512
        address = dice.randrange(40) * 512
        if all(
            a.process != process or a.address >= address + size or address >= a.address + a.size
            for a in alive
        ):
            stream = dice.choice((0, 0x5000, 0x6000))
            alive.append(DriverAllocation(address, size, 0, stream, (), 10 * step, None, (), process))
    blocks = done + alive
    dice.shuffle(blocks)
    return blocks


def by_definition(blocks: list[DriverAllocation]) -> set[tuple[DriverAllocation, DriverAllocation]]:
    found = set()
    for old in blocks:
        if old.freed is None or not old.stream:
            continue
        later = [
            new
            for new in blocks
            if new.process == old.process
            and new.microseconds >= old.freed
            and new.address < old.address + old.size
            and old.address < new.address + new.size
        ]
        if later:
            found.add((old, min(later, key=lambda new: new.microseconds)))
    return found


def test_equals_its_definition() -> None:
    pairs = 0
    for seed in range(60):
        blocks = history(seed, 120)
        found = handed_out_again(blocks)
        assert set(found) == by_definition(blocks), seed
        assert len(found) == len(set(found))
        assert [old.microseconds for old, _ in found] == sorted(old.microseconds for old, _ in found)
        pairs += len(found)
    assert pairs > 500


def test_one_that_lived_less_than_a_microsecond_is_not_its_own_successor() -> None:
    block = DriverAllocation(0x7000, 512, stream=0x5000, microseconds=5, freed=5)
    again = DriverAllocation(0x7000, 512, stream=0x5000, microseconds=9)
    assert handed_out_again([block]) == []
    assert handed_out_again([block, again]) == [(block, again)]


def test_a_log_of_the_largest_size_takes_no_time() -> None:
    """Every pair of 65,536 rows took minutes."""
    apart = [
        DriverAllocation(i * 4096, 4096, stream=5, microseconds=2 * i, freed=2 * i + 1)
        for i in range(1 << 16)
    ]
    upon = [
        DriverAllocation(0, 1 << 40, stream=5, microseconds=2 * i, freed=2 * i + 1) for i in range(1 << 16)
    ]
    begin = time.process_time()
    assert handed_out_again(apart) == []
    assert len(handed_out_again(upon)) == (1 << 16) - 1
    assert time.process_time() - begin < 10
