"""Runs in a process of its own: NVIDIA's reader loads a report and the values go to standard output as JSON.

A damaged report can abort the reader (SIGABRT), and with it only this process.
"""

from __future__ import annotations

import json
import sys
from typing import Any

#: Bounds for reports from strangers.
MAX_LAUNCHES = 500
_MAX_TIMED_LAUNCHES = 100_000
#: All that is read of each launch where only the time matters.
_TIMES = (
    "gpu__time_duration.sum",
    "launch__device_id",
    "launch__registers_per_thread",
    "launch__sm_count",
    "device__attribute_compute_capability_major",
    "device__attribute_compute_capability_minor",
    *(f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"),
)
_MAX_METRICS = 20_000
_MAX_INSTRUCTIONS = 100_000
_MAX_TEXT = 2_000
_NO_INSTRUCTIONS: dict[str, Any] = {"pcs": [], "sass": [], "lines": [], "files": [], "counters": {}}


def main(path: str, what: str = "") -> int:
    """Print the launches of a report, with "times" of many and little of each; 3 when the reader refuses it."""
    import ncu_report

    # The reader prints its own complaints; ours is the only voice on standard output.
    try:
        context = ncu_report.load_report(path)
    except Exception as error:
        print(str(error)[:300], file=sys.stderr)
        return 3
    total = 0
    most = _MAX_TIMED_LAUNCHES if what == "times" else MAX_LAUNCHES
    launches: list[dict[str, Any]] = []
    for r in range(context.num_ranges()):
        part = context.range_by_idx(r)
        for a in range(part.num_actions()):
            if total < most:
                action = part.action_by_idx(a)
                launches.append(_timed(action, total) if what == "times" else _launch(action, total))
            total += 1
    json.dump({"launches": launches, "total": total}, sys.stdout, separators=(",", ":"))
    return 0


def _timed(action: Any, index: int) -> dict[str, Any]:
    metrics = {}
    for name in _TIMES:
        metric = action.metric_by_name(name)
        if metric is not None and isinstance(value := metric.value(), (int, float)):
            metrics[name] = [value, (metric.unit() or "")[:40]]
    return {**_names(action, index), "metrics": metrics, "rules": [], **_NO_INSTRUCTIONS}


def _names(action: Any, index: int) -> dict[str, Any]:
    return {
        "index": index,
        "kernel": action.name(action.NameBase_MANGLED)[:_MAX_TEXT],
        "name": action.name(action.NameBase_DEMANGLED)[:_MAX_TEXT],
        "short": action.name(action.NameBase_FUNCTION)[:_MAX_TEXT],
    }


def _launch(action: Any, index: int) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    instances: list[tuple[str, Any]] = []
    for name in list(action.metric_names())[:_MAX_METRICS]:
        metric = action.metric_by_name(name)
        if metric is None:
            continue
        if metric.has_value() if hasattr(metric, "has_value") else True:
            value = metric.value()
            if isinstance(value, str):
                value = value[:_MAX_TEXT]
            if isinstance(value, (int, float, str)):
                metrics[name[:300]] = [value, (metric.unit() or "")[:40]]
        if metric.has_correlation_ids() and metric.num_instances() > 0:
            instances.append((name, metric))
    return {
        **_names(action, index),
        "metrics": metrics,
        "rules": _rules(action),
        **_instructions(action, instances),
    }


def _rules(action: Any) -> list[dict[str, Any]]:
    found = []
    for rule in action.rule_results_as_dicts()[:200]:
        message = rule.get("rule_message") or {}
        speedup = rule.get("speedup_estimation") or {}
        found.append(
            {
                "rule": str(rule.get("rule_identifier", ""))[:200],
                "section": str(rule.get("section_identifier", ""))[:200],
                "title": str(message.get("title", ""))[:200],
                "message": str(message.get("message", ""))[:_MAX_TEXT],
                "type": message.get("type"),
                "speedup": speedup.get("speedup"),
            }
        )
    return found


def _instructions(action: Any, instances: list[tuple[str, Any]]) -> dict[str, Any]:
    """Counters by instruction: of the metrics whose instances are addresses of the kernel's code."""
    executed = next((metric for name, metric in instances if name == "inst_executed"), None)
    if executed is None:
        return _NO_INSTRUCTIONS
    ids = executed.correlation_ids()
    count = min(executed.num_instances(), _MAX_INSTRUCTIONS)
    pcs = sorted(ids.as_uint64(i) for i in range(count))
    position = {pc: i for i, pc in enumerate(pcs)}
    counters: dict[str, Any] = {}
    for name, metric in instances:
        ids = metric.correlation_ids()
        if ids.kind() == ids.ValueKind_STRING:
            continue
        addresses = [ids.as_uint64(i) for i in range(min(metric.num_instances(), _MAX_INSTRUCTIONS))]
        pairs = [[position[pc], metric.as_double(i)] for i, pc in enumerate(addresses) if pc in position]
        # Other metrics are counted by time, by block size and so on; samples can lie on the padding as well.
        if pairs and 2 * len(pairs) >= len(addresses):
            counters[name[:300]] = pairs
    files: dict[str, int] = {}
    lines: list[list[int] | None] = []
    for pc in pcs:
        info = action.source_info(pc)
        if info is None:
            lines.append(None)
        else:
            lines.append([files.setdefault(info.file_name()[:_MAX_TEXT], len(files)), int(info.line())])
    sass = [" ".join((action.sass_by_pc(pc) or "").split())[:300] for pc in pcs]
    return {"pcs": pcs, "sass": sass, "lines": lines, "files": list(files), "counters": counters}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
