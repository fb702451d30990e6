"""``cuwhy doctor``."""

from __future__ import annotations

import argparse


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "doctor",
        help="say what this machine can do, and how to get what is missing",
        description="Say what this machine can do. Exit code 0 when GPU core dumps can work here, else 1.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Look and print; 0 when core dumps can work, else 1."""
    from cuwhy.capture.doctor import dumps_work, examine, one_command, summary
    from cuwhy.report.escape import safe

    checks = examine()
    works = dumps_work(checks)
    if arguments.json:
        import json
        from dataclasses import asdict

        print(
            json.dumps(
                {
                    "core_dumps": works,
                    "get": one_command(checks),
                    "checks": [asdict(check) for check in checks],
                },
                indent=2,
            )
        )
        return 0 if works else 1
    print(safe(summary()))
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{check.state:<8} {check.name:<{width}}  {safe(check.found, 120)}")
        if check.state != "ok":
            print(f"{'':<8} {'':<{width}}  for: {check.use}")
            if check.fix:
                print(f"{'':<8} {'':<{width}}  get: {check.fix}")
    if command := one_command(checks):
        print(f"to get what packages can give: {command}")
    print("GPU core dumps can work here" if works else "GPU core dumps cannot work here")
    return 0 if works else 1
