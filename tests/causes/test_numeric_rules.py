"""What separates the numeric causes from each other, on recorded events and on changed copies of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cuwhy.case import open_case
from cuwhy.causes.numeric_events import classify
from cuwhy.diagnosing import conclude
from cuwhy.model.diagnosis import Role
from cuwhy.model.numerics import NumericEvent, TensorRange
from cuwhy.read.numerics import read_numerics

CORPUS = Path(__file__).resolve().parents[2] / "corpus" / "numeric"


def first(name: str) -> NumericEvent:
    with open_case(next(CORPUS.glob(f"*/{name}/evidence.cuwhy"))) as case:
        entry = next(e for e in case.artefacts if e.kind == "numerics")
        facts = read_numerics(case.read(entry.path), entry.path)
    return next(fact for fact in facts if isinstance(fact, NumericEvent))


def test_an_inf_that_float64_has_as_well_is_no_overflow_of_half() -> None:
    event = first("bad_rms_norm")
    assert classify(event) == "half-overflow"
    infinite = TensorRange((8, 1), "float64", inf=1, finite=False)
    assert classify(replace(event, exact=infinite)) == ""


def test_an_overflow_of_float32_is_not_called_one_of_half() -> None:
    event = first("bad_rms_norm")
    outputs = tuple(replace(o, dtype="float32") for o in event.operation.outputs)
    assert classify(replace(event, operation=replace(event.operation, outputs=outputs))) == ""


def test_an_epsilon_that_float32_holds_is_not_lost() -> None:
    event = first("bad_cosine")
    assert classify(event) == "epsilon-lost-in-cast"
    wide = tuple(
        replace(op, outputs=tuple(replace(o, dtype="float32") for o in op.outputs)) for op in event.history
    )
    assert classify(replace(event, history=wide)) == "division-by-zero"


def test_one_mask_and_scores_are_no_double_mask() -> None:
    event = first("bad_query_and_key")
    at = event.at[1]
    assert at is not None
    assert classify(replace(event, at=(event.at[0], replace(at, low=-100.0, high=-90.0)))) == "half-overflow"


def test_under_gradient_scaling_an_inf_in_the_backward_pass_is_latent() -> None:
    event = replace(first("bad_distance_gradient"), scaled=True)
    finding = conclude([event]).findings[0]
    assert (finding.cause.name, finding.role) == ("numeric/division-by-zero", Role.LATENT)
    assert any("gradient scaling" in reason for reason in finding.why)


def log_of_zero(event: NumericEvent) -> NumericEvent:
    zeros = TensorRange((4,), "float32", "cpu", 0.0, 0.0, zeros=4)
    minus = TensorRange((4,), "float32", "cpu", minus_inf=4, finite=False)
    operation = replace(event.operation, name="log", number=1, inputs=(zeros,), outputs=(minus,))
    return replace(event, kind="inf", operation=operation, at=(zeros,), history=(), exact=None)


def test_log_of_zero_is_latent_until_a_nan_follows() -> None:
    nan = first("bad_mask_product")
    log = log_of_zero(nan)
    assert [(f.cause.name, f.role) for f in conclude([log]).findings[:1]] == [
        ("numeric/log-sqrt-domain", Role.LATENT)
    ]
    both = conclude([log, nan])
    assert both.primary is not None
    assert both.primary.cause.name == "numeric/log-sqrt-domain"
    assert {f.cause.name: f.role for f in both.findings}["numeric/zero-times-inf"] is Role.CASCADE


def test_later_events_are_cascades_and_other_processes_are_their_own() -> None:
    event = first("bad_mask_product")
    later = replace(event, operation=replace(event.operation, number=event.operation.number + 5))
    other = replace(event, process=event.process + 1)
    assert [f.role for f in conclude([event, later, other]).findings] == [
        Role.PRIMARY, Role.PRIMARY, Role.CASCADE,
    ]  # fmt: skip


def test_a_nan_that_no_operation_made_is_unexplained_and_asks_for_poison() -> None:
    diagnosis = conclude([replace(first("bad_ring_buffer"), kind="arrived")])
    assert diagnosis.primary is not None
    assert diagnosis.primary.cause.name == "unknown/unexplained"
    assert any("--poison" in question.step for question in diagnosis.open)
