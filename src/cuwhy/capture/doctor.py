"""What this machine can do for a diagnosis, what is missing, and the one command that gets it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cuwhy.process import Running

_SECONDS = 10.0
#: For everything together: a driver that hangs must not make the doctor hang.
_ALL_SECONDS = 30.0
_GB = 1 << 30
_CUDA_FOLDERS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")
#: Name, driver version, compute capability, compute mode.
_ROW = re.compile(r"[^,]{1,100}, *[0-9]{1,5}(?:\.[0-9]{1,5}){1,3}, *[^,]{1,20},")
_TOOLKIT = "install the CUDA toolkit (https://developer.nvidia.com/cuda-downloads)"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked for.

    Attributes:
        name: what; state: "ok", "limited" or "missing".
        found: version and place, or what is wrong.
        use: what it is for.
        fix: the command that gets it, empty when nothing is to be done.
        needed: True when no core dump can be had without it.
    """

    name: str
    state: str
    found: str
    use: str
    fix: str = ""
    needed: bool = False


def examine() -> list[Check]:
    """Look at everything; works on a machine that has nothing of it."""
    end = time.monotonic() + _ALL_SECONDS
    checks = [_driver(end), _gpu_access()]
    checks += [
        _tool(
            end,
            "nvdisasm",
            ("--version",),
            "addresses, and what threads wait for",
            "pip install 'cuwhy[sass]'",
        ),
        _tool(
            end,
            "compute-sanitizer",
            ("--version",),
            "the plan of `cuwhy run`: memcheck, racecheck, synccheck, initcheck",
            "pip install nvidia-cuda-sanitizer-api",
        ),
        _tool(end, "cuda-gdb", ("--version",), "not used by cuwhy; for looking by hand", _TOOLKIT),
        _tool(end, "ncu", ("--version",), "profiles", _TOOLKIT),
        _tool(end, "py-spy", ("--version",), "Python stacks of hung programs", "pip install py-spy"),
        _compiler(end),
        _recorder(),
        _hook(),
        _ptrace(),
        _counters(),
        _disk(),
        _control(),
    ]
    return checks


def dumps_work(checks: list[Check]) -> bool:
    """Tell whether a GPU core dump can be had on this machine."""
    return all(check.state != "missing" for check in checks if check.needed)


def _output(argv: list[str], end: float) -> str | None:
    limit = min(_SECONDS, end - time.monotonic())
    if limit <= 0:
        return None
    try:
        done = Running(argv).finish(limit)
    except OSError:
        return None
    return (done.out or done.err).decode("utf-8", "replace") if done.ok else None


def _driver(end: float) -> Check:
    use = "a GPU core dump: kernel, line, threads, arguments"
    tool = shutil.which("nvidia-smi")
    if tool is None:
        module = Path("/proc/driver/nvidia/version")
        if module.exists():
            return Check(
                "driver", "ok", "kernel module loaded; nvidia-smi is not installed", use, needed=True
            )
        return Check(
            "driver", "missing", "no nvidia-smi and no kernel module", use,
            "install the NVIDIA driver, or in a container: docker run --gpus all", needed=True,
        )  # fmt: skip
    query = "--query-gpu=name,driver_version,compute_cap,compute_mode"
    out = _output([tool, query, "--format=csv,noheader"], end)
    rows = [row for row in map(str.strip, (out or "").splitlines()) if _ROW.match(row)]
    if not rows:
        return Check(
            "driver",
            "missing",
            "nvidia-smi gives no GPU",
            use,
            "nvidia-smi   # see what it says",
            needed=True,
        )
    kinds = sorted(set(rows))
    name, version, capability, _ = (part.strip() for part in kinds[0].split(",")[:4])
    found = f"{len(rows)} GPU{'s' if len(rows) > 1 else ''}: {name} (sm_{capability.replace('.', '')}), driver {version}"
    if _number(version) < 560:
        # The generation flags came with CUDA 12.5, user-triggered dumps through a pipe with 11.8.
        return Check("driver", "limited", f"{found}: too old for light dumps that keep the program alive", use,
                     "install driver 560 or newer", needed=True)  # fmt: skip
    return Check("driver", "ok", found, use, needed=True)


def _number(version: str) -> int:
    match = re.match(r"[0-9]{1,6}", version)
    return int(match[0]) if match else 0


def _gpu_access() -> Check:
    use = "the program can open the GPU"
    nodes = sorted(Path("/dev").glob("nvidia[0-9]*"))
    control = Path("/dev/nvidiactl")
    if not nodes:
        # WSL has one device of another name.
        if Path("/dev/dxg").exists():
            return Check("device nodes", "limited", "/dev/dxg (WSL): core dumps need a recent driver", use)
        return Check(
            "device nodes", "missing", "no /dev/nvidia*", use, "sudo nvidia-modprobe -u -c 0", needed=True
        )
    closed = [node.name for node in (*nodes, control) if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return Check("device nodes", "missing", f"no access to {', '.join(closed[:4])}", use,
                     "sudo usermod -aG video $USER   # then log in again", needed=True)  # fmt: skip
    return Check("device nodes", "ok", f"{len(nodes)} found", use)


def _find(name: str) -> str | None:
    found = shutil.which(name)
    if name == "compute-sanitizer":
        from cuwhy.capture.probes.settings import sanitizer

        return sanitizer()
    if found is None and name == "nvdisasm":
        from cuwhy.locate.sass import find_nvdisasm

        try:
            return find_nvdisasm()
        except Exception:
            # Not installed is what is being asked here, whatever the error is called.
            return None
    if found is None:
        folders = [f"{base}/{sub}" for base in _CUDA_FOLDERS for sub in ("bin", "compute-sanitizer")]
        found = shutil.which(name, path=os.pathsep.join(folders))
    return found


def _tool(end: float, name: str, arguments: tuple[str, ...], use: str, fix: str) -> Check:
    path = _find(name)
    if path is None:
        return Check(name, "missing", "not found", use, fix)
    out = _output([path, *arguments], end)
    version = re.search(r"[Vv]?(\d+\.\d+(?:\.\d+){0,3})", out or "")
    if version is None:
        return Check(name, "limited", f"{path}: gives no version", use, fix)
    return Check(name, "ok", f"{version[1]} ({path})", use)


def _compiler(end: float) -> Check:
    use = "the launch recorder, compiled once"
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        path = shutil.which(name) if name else None
        if path is not None:
            out = _output([path, "--version"], end)
            first = (out or "").splitlines()[:1]
            return Check("C compiler", "ok", f"{first[0][:80] if first else '?'} ({path})", use)
    return Check("C compiler", "missing", "neither cc, gcc nor clang", use, "sudo apt-get install gcc")


def _recorder() -> Check:
    use = "the host line of a launch; reruns with launches synchronised or delayed"
    import tempfile

    from cuwhy.capture.recorder import prepare

    try:
        # Built, and loaded once: what stands in the cache may have been built for another system.
        with tempfile.TemporaryDirectory(prefix="cuwhy-") as folder:
            recorder = prepare(Path(folder), os.environ)
            library = recorder.environment.get("LD_PRELOAD", "").partition(":")[0]
            if recorder.note:
                return Check(
                    "launch recorder", "missing", recorder.note, use, "sudo apt-get install gcc libc6-dev"
                )
            kept = not library.startswith(folder)
    except OSError as error:
        return Check("launch recorder", "missing", str(error), use, "export TMPDIR=/some/large/folder")
    where = f"built ({library})" if kept else "built anew for each run: no cache can be written"
    return Check(
        "launch recorder", "ok" if kept else "limited", where, use,
        "" if kept else "export XDG_CACHE_HOME=/some/folder/of/yours",
    )  # fmt: skip


def _hook() -> Check:
    use = "tensors behind addresses, Python stacks of hangs, memory filled with NaN"
    from cuwhy.capture.hook import hook_variables

    if hook_variables({}, Path("/"), "off"):
        return Check("PyTorch hook", "ok", "for programs whose Python reads PYTHONPATH", use)
    return Check(
        "PyTorch hook", "missing", "cuwhy's files are not on disk (a zip?), or under a path with ':'", use,
        "pip install --force-reinstall cuwhy",
    )  # fmt: skip


def one_command(checks: list[Check]) -> str:
    """Return one shell line that gets all that packages can give; empty when nothing is missing of it."""
    parts = []
    for installer in ("sudo apt-get install", "pip install"):
        wanted = [
            check.fix.removeprefix(installer).strip()
            for check in checks
            if check.state != "ok" and check.fix.startswith(f"{installer} ")
        ]
        words = list(dict.fromkeys(word for fix in wanted for word in fix.split()))
        if words:
            parts.append(f"{installer} {' '.join(words)}")
    return " && ".join(parts)


def _ptrace() -> Check:
    use = "py-spy on programs that run"
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return Check("ptrace", "ok", "not restricted", use)
    if scope == 0 or os.geteuid() == 0:
        return Check("ptrace", "ok", f"scope {scope}" + (" (as root)" if scope else ""), use)
    return Check("ptrace", "limited", f"scope {scope}: only children may be looked into", use,
                 "sudo sysctl kernel.yama.ptrace_scope=0")  # fmt: skip


def _counters() -> Check:
    use = "performance counters for ncu"
    try:
        text = Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        return Check("GPU counters", "limited", "the driver does not say", use)
    if re.search(r"^RmProfilingAdminOnly:\s*0", text, re.M) or os.geteuid() == 0:
        return Check("GPU counters", "ok", "allowed", use)
    return Check(
        "GPU counters", "limited", "for administrators only", use,
        "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/ncu.conf   # reboot",
    )  # fmt: skip


def _disk() -> Check:
    use = "dumps (up to 32 MB a process) and cases"
    place = next((p for p in (os.environ.get("TMPDIR"), "/tmp", ".") if p and os.path.isdir(p)), ".")
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Check(
            "disk", "missing", f"{place}: {error.strerror}", use, "export TMPDIR=/some/large/folder", True
        )
    if not os.access(place, os.W_OK):
        return Check(
            "disk", "missing", f"{place} is not writable", use, "export TMPDIR=/some/large/folder", True
        )
    state = "ok" if free >= _GB else "limited"
    fix = "" if state == "ok" else "export TMPDIR=/some/large/folder"
    return Check("disk", state, f"{free / 1e9:.1f} GB free in {place}", use, fix, needed=True)


def _control() -> Check:
    use = "`cuwhy poke`"
    from cuwhy.capture.control import control_folder
    from cuwhy.model.errors import CuwhyError

    try:
        return Check("control folder", "ok", str(control_folder()), use)
    except CuwhyError as error:
        return Check(
            "control folder", "limited", str(error), use, "export XDG_RUNTIME_DIR=/run/user/$(id -u)"
        )


def python_packages() -> dict[str, bool]:
    """Tell which of the Python packages that programs here launch kernels with are installed (never imported)."""
    return {name: _installed(name) for name in ("torch", "triton", "cupy", "numba", "jax")}


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def summary() -> str:
    """One line on the interpreter and the system."""
    system = os.uname()
    packages = [name for name, there in python_packages().items() if there]
    return f"Python {sys.version.split()[0]}, {system.sysname} {system.machine}" + (
        f", with {', '.join(packages)}" if packages else ""
    )
