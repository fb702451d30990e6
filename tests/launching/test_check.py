"""Launches that would be refused or waste; the numbers follow from NVIDIA's limits, by hand."""

from __future__ import annotations

import json

import pytest

from cuwhy import validate_launch_config
from cuwhy.cli.main import main
from cuwhy.model.errors import InputError


def codes(**launch: object) -> list[str]:
    check = validate_launch_config("sm_90", **launch)  # type: ignore[arg-type]
    return [problem.code for problem in check.problems]


@pytest.mark.parametrize(
    ("launch", "code", "requested", "limit"),
    [
        ({"block": 1025}, "block-axis", 1025, 1024),
        ({"block": (32, 33)}, "threads-per-block", 1056, 1024),
        ({"block": (1, 1, 65)}, "block-axis", 65, 64),
        ({"block": 0}, "block-axis", 0, 1),
        ({"block": 32, "grid": 0}, "grid-axis", 0, 1),
        ({"block": 32, "grid": (1, 1, 65536)}, "grid-axis", 65536, 65535),
        ({"block": 32, "grid": 2**31}, "grid-axis", 2**31, 2**31 - 1),
        # 80 registers x 32 lanes = 2,560 a warp, 32 warps.
        ({"block": 1024, "registers": 80}, "registers-per-block", 81920, 65536),
        # 9 warps count as 12: 12 x 32 x 176 = 67,584, although 9 would fit.
        ({"block": 288, "registers": 176}, "registers-per-block", 67584, 65536),
        ({"block": 32, "dynamic_shared": 232449}, "shared-memory", 232449, 232448),
        ({"block": 32, "static_shared": 49153}, "static-shared-memory", 49153, 49152),
        (
            {"block": 32, "dynamic_shared": 50000, "max_dynamic_shared": 49152},
            "dynamic-shared-memory",
            50000,
            49152,
        ),
        ({"block": 256, "max_threads_per_block": 128}, "launch-bounds", 256, 128),
        ({"block": 32, "grid": 32, "cluster": 32}, "cluster-size", 32, 16),
        ({"block": 32, "grid": 7, "cluster": 4}, "cluster-shape", 7, 4),
        # 2,048 threads an SM in blocks of 1,024: 2 x 132.
        ({"block": 1024, "grid": 265, "cooperative": True, "sm_count": 132}, "cooperative-grid", 265, 264),
    ],
)
def test_refused(launch: dict[str, object], code: str, requested: int, limit: int) -> None:
    check = validate_launch_config("sm_90", **launch)  # type: ignore[arg-type]
    problem = next(p for p in check.errors if p.code == code)
    assert (problem.requested, problem.limit) == (requested, limit)
    assert not check.launches


def test_clusters_need_hopper() -> None:
    check = validate_launch_config("sm_89", block=32, grid=8, cluster=2)
    assert [p.code for p in check.errors] == ["clusters-unsupported"]


@pytest.mark.parametrize(
    "launch",
    [
        {"block": 256, "grid": 8 * 132, "sm_count": 132, "registers": 32},
        {"block": (16, 16, 4), "grid": (1, 65535, 65535)},
        {"block": 1024, "grid": 264, "cooperative": True, "sm_count": 132},
        {"block": 1024, "registers": 64},
    ],
)
def test_nothing_to_say(launch: dict[str, object]) -> None:
    assert codes(**launch) == []


def test_waste() -> None:
    assert codes(block=33)[0] == "partial-warp"
    # 2,048 / 256 = 8 blocks an SM; one block more than two full waves.
    check = validate_launch_config("sm_90", block=256, grid=2 * 8 * 132 + 1, sm_count=132)
    (tail,) = check.warnings
    assert tail.code == "tail-wave"
    assert check.waves == pytest.approx(2 + 1 / 1056)
    assert check.tail_loss == pytest.approx((1056 - 1) / (3 * 1056))
    assert codes(block=256, grid=100, sm_count=132) == ["idle-sms"]


def test_low_occupancy_names_the_limiter_and_what_lifts_it() -> None:
    # 141 -> 144 registers a lane as allocated: 4,608 a warp, 3 warps a partition, one block of 8.
    (low,) = validate_launch_config("sm_90", block=256, registers=141).warnings
    assert low.code == "occupancy"
    assert "8 of 64 warps" in low.text
    assert "limited by registers" in low.text
    # Two blocks are 16 warps, 4 a partition: 16,384 / 4 / 32 = 128.
    assert "128 registers instead of 141" in low.fix
    assert "__launch_bounds__(256, 2)" in low.fix


@pytest.mark.parametrize(
    ("architecture", "launch"),
    [
        ("sm_1", {"block": 1}),
        ("\x1b[2J", {"block": 1}),
        ("sm_90", {"block": (1, 1, 1, 1)}),
        ("sm_90", {"block": ()}),
        ("sm_90", {"block": 1, "registers": -1}),
        ("sm_90", {"block": 10**40}),
    ],
)
def test_nonsense_is_refused(architecture: str, launch: dict[str, object]) -> None:
    with pytest.raises(InputError):
        validate_launch_config(architecture, **launch)  # type: ignore[arg-type]


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch-check", "--arch", "9.0", "--block", "256", "--grid", "8x8"]) == 0
    assert "8 blocks, 64 warps on an SM (100%)" in capsys.readouterr().out
    assert main(["launch-check", "--arch", "sm_90", "--block", "2000", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["launches"] is False
    assert answer["problems"][0]["code"] == "block-axis"
    assert main(["launch-check", "--arch", "sm_5", "--block", "1"]) == 2
    with pytest.raises(SystemExit) as refused:
        main(["launch-check", "--arch", "sm_90", "--block", "1;2"])
    assert refused.value.code == 2
