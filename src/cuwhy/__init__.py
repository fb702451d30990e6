"""cuwhy: why a GPU kernel failed, from the evidence it left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuwhy.capture.profiling import diagnose_kernel
    from cuwhy.diagnosing import diagnose
    from cuwhy.launching.check import LaunchCheck, validate_launch_config
    from cuwhy.model.diagnosis import Diagnosis, Finding
    from cuwhy.model.errors import CuwhyError, InputError
    from cuwhy.model.profile import ProfiledLaunch
    from cuwhy.profiles.annotate import annotate_kernel_source
    from cuwhy.profiles.ncu import parse_ncu_report
    from cuwhy.watching import NumericWatch, numerics

__version__ = "0.1.0"

__all__ = [
    "CuwhyError",
    "Diagnosis",
    "Finding",
    "InputError",
    "LaunchCheck",
    "NumericWatch",
    "ProfiledLaunch",
    "__version__",
    "annotate_kernel_source",
    "diagnose",
    "diagnose_kernel",
    "numerics",
    "parse_ncu_report",
    "validate_launch_config",
]

_LAZY = {
    "diagnose": "cuwhy.diagnosing",
    "diagnose_kernel": "cuwhy.capture.profiling",
    "numerics": "cuwhy.watching",
    "NumericWatch": "cuwhy.watching",
    "validate_launch_config": "cuwhy.launching.check",
    "LaunchCheck": "cuwhy.launching.check",
    "ProfiledLaunch": "cuwhy.model.profile",
    "annotate_kernel_source": "cuwhy.profiles.annotate",
    "parse_ncu_report": "cuwhy.profiles.ncu",
    "Diagnosis": "cuwhy.model.diagnosis",
    "Finding": "cuwhy.model.diagnosis",
    "CuwhyError": "cuwhy.model.errors",
    "InputError": "cuwhy.model.errors",
}


def __getattr__(name: str) -> Any:
    # Importing cuwhy must cost nothing: the command line asks for one verb only.  (The module is
    # called diagnosing because a submodule would shadow the function of its own name.)
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'cuwhy' has no attribute {name!r}")
