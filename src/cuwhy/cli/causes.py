"""``cuwhy causes`` and ``cuwhy explain NAME``."""

from __future__ import annotations

import argparse


def add_parsers(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register both verbs."""
    causes = verbs.add_parser("causes", help="list the causes that cuwhy knows")
    causes.add_argument("--json", action="store_true", help="print JSON")
    causes.set_defaults(run=list_causes)
    explain = verbs.add_parser("explain", help="explain one cause: what it looks like, why, proof, fix")
    explain.add_argument(
        "name", metavar="NAME", help="for example memory/shared-out-of-bounds, or shared-out-of-bounds"
    )
    explain.set_defaults(run=explain_cause)


def list_causes(arguments: argparse.Namespace) -> int:
    """Print the catalogue."""
    from cuwhy.causes.catalogue import catalogue
    from cuwhy.causes.confidence import confidence_of

    if arguments.json:
        import json

        rows = []
        for entry in catalogue():
            confidence = confidence_of(entry.cause.name)
            rows.append(
                {
                    "name": entry.cause.name,
                    "title": entry.cause.title,
                    "severity": entry.cause.severity.value,
                    "confidence": round(confidence.value, 4),
                    "hits": confidence.hits,
                    "misses": confidence.misses,
                }
            )
        print(json.dumps(rows, indent=2))
        return 0
    width = max(len(entry.cause.name) for entry in catalogue())
    for entry in catalogue():
        print(f"{entry.cause.name:<{width}}  {entry.cause.title}")
    return 0


def explain_cause(arguments: argparse.Namespace) -> int:
    """Print the README of one cause."""
    from cuwhy.causes.catalogue import find

    print(find(arguments.name).text.rstrip())
    return 0
