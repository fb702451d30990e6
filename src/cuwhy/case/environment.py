"""What of the environment and the command line may go into a case.

The environment of a training job holds tokens, account names, host names and
paths.  So nothing is taken out of it by pattern: a variable is kept only when
its name is in the list below, because it changes what a kernel does or what
evidence a run leaves.  Its value is then cut, and dropped when it looks like a
secret.  Documentation of the variables: CUDA C++ Programming Guide
("CUDA Environment Variables"), CUDA-GDB ("GPU core dump support"), PyTorch
("CUDA Environment Variables"), Triton's README, NCCL ("Environment Variables").
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

#: Characters of a value that are kept; the rest is cut off.
MAX_VALUE_CHARACTERS = 256
#: Arguments of the command line, and characters of one.
MAX_ARGUMENTS = 1024
MAX_ARGUMENT_CHARACTERS = 4096
#: What stands where something was taken out of the command line.
REMOVED = "[removed]"

#: Variables whose value is a path, of which only the base name is kept: an
#: injected library can switch core dumps off, where it lies does not matter.
BASE_NAME_ONLY = frozenset({"LD_PRELOAD", "CUDA_INJECTION64_PATH"})

#: Every variable that may stand in a case.  Left out on purpose: anything that
#: holds a path (CUDA_HOME, TRITON_CACHE_DIR, CUDA_COREDUMP_FILE, CUDA_MPS_PIPE_DIRECTORY),
#: a host or network (NCCL_SOCKET_IFNAME, NCCL_COMM_ID, MASTER_ADDR) or free text.
ALLOWED = (
    frozenset(
        [
            "CUDA_AUTO_BOOST",
            "CUDA_BINARY_LOADER_THREAD_COUNT",
            "CUDA_CACHE_DISABLE",
            "CUDA_CACHE_MAXSIZE",
            "CUDA_COREDUMP_GENERATION_FLAGS",
            "CUDA_COREDUMP_SHOW_PROGRESS",
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
            "CUDA_DEVICE_ORDER",
            "CUDA_DEVICE_WAITS_ON_EXCEPTION",
            "CUDA_DISABLE_JIT",
            "CUDA_DISABLE_PERF_BOOST",
            "CUDA_DISABLE_PTX_JIT",
            "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
            "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION",
            "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
            "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
            "CUDA_FORCE_JIT",
            "CUDA_FORCE_PTX_JIT",
            "CUDA_LAUNCH_BLOCKING",
            "CUDA_MANAGED_FORCE_DEVICE_ALLOC",
            "CUDA_MODULE_DATA_LOADING",
            "CUDA_MODULE_LOADING",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
            "CUDA_SCALE_LAUNCH_QUEUES",
            "CUDA_VISIBLE_DEVICES",
            "CUBLAS_WORKSPACE_CONFIG",
            "NVIDIA_DRIVER_CAPABILITIES",
            "NVIDIA_TF32_OVERRIDE",
            "NVIDIA_VISIBLE_DEVICES",
            "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
            "TORCH_BLAS_PREFER_CUBLASLT",
            "TORCH_CUDA_ARCH_LIST",
            "TORCH_CUDNN_V8_API_DISABLED",
            "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT",
            "TORCH_DISTRIBUTED_DEBUG",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING",
            "TORCH_NCCL_AVOID_RECORD_STREAMS",
            "TORCH_NCCL_BLOCKING_WAIT",
            "TORCH_NCCL_CUDA_EVENT_CACHE",
            "TORCH_NCCL_ENABLE_MONITORING",
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
            "TORCH_SHOW_CPP_STACKTRACES",
            "TORCH_USE_CUDA_DSA",
            "TORCHDYNAMO_DISABLE",
            "TORCHINDUCTOR_MAX_AUTOTUNE",
            "PYTORCH_ALLOC_CONF",
            "PYTORCH_CUDA_ALLOC_CONF",
            "PYTORCH_JIT",
            "PYTORCH_NO_CUDA_MEMORY_CACHING",
            "PYTORCH_NVML_BASED_CUDA_CHECK",
            "TRITON_ALWAYS_COMPILE",
            "TRITON_DEBUG",
            "TRITON_DEFAULT_FP_FUSION",
            "TRITON_DISABLE_LINE_INFO",
            "TRITON_FRONT_END_DEBUGGING",
            "TRITON_INTERPRET",
            "TRITON_KERNEL_DUMP",
            "TRITON_KERNEL_OVERRIDE",
            "TRITON_PRINT_AUTOTUNING",
            "NCCL_ALGO",
            "NCCL_BLOCKING_WAIT",
            "NCCL_BUFFSIZE",
            "NCCL_CUMEM_ENABLE",
            "NCCL_DEBUG",
            "NCCL_DEBUG_SUBSYS",
            "NCCL_GRAPH_MIXING_SUPPORT",
            "NCCL_IB_DISABLE",
            "NCCL_LAUNCH_MODE",
            "NCCL_MAX_CTAS",
            "NCCL_MAX_NCHANNELS",
            "NCCL_MIN_CTAS",
            "NCCL_MIN_NCHANNELS",
            "NCCL_NTHREADS",
            "NCCL_NVLS_ENABLE",
            "NCCL_P2P_DISABLE",
            "NCCL_P2P_LEVEL",
            "NCCL_PROTO",
            "NCCL_SHM_DISABLE",
            "OMP_NUM_THREADS",
            "MKL_NUM_THREADS",
            "RANK",
            "LOCAL_RANK",
            "WORLD_SIZE",
            "LOCAL_WORLD_SIZE",
        ]
    )
    | BASE_NAME_ONLY
)

# Prefixes of tokens as their issuers publish them for secret scanners.
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|gh[opsur]_|github_pat_|glpat-|sk-|sk_|pk_|xox[abeprs]-|AKIA|ASIA|AIza|eyJ|npm_|pypi-|nvapi-"
    r"|dop_v1_|SG\.|ya29\.)[A-Za-z0-9_\-]{8,}"
)
_PEM = re.compile(r"-----BEGIN [A-Z ]+-----")
_USER_INFO = re.compile(r"(?<=://)(?!\[removed\]@)[^/@\s]{1,256}@")
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_RUN = re.compile(r"[A-Za-z0-9+]{20,}")
_HOME = re.compile(r"(?:(?<![\w.~/-])|(?<=//))/(?:home/[^/\s:]+|Users/[^/\s:]+|root)(?=/|$)")

_SECRET_WORDS = frozenset(
    [
        "token",
        "password",
        "passwd",
        "pass",
        "pwd",
        "passphrase",
        "secret",
        "secrets",
        "apikey",
        "credential",
        "credentials",
        "auth",
        "bearer",
        "authorization",
        "cookie",
        "pat",
    ]
)
_KEY_WORDS = frozenset(
    ["api", "access", "private", "secret", "license", "signing", "encryption", "account", "storage"]
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def looks_secret(text: str) -> bool:
    """Return True when ``text`` holds what looks like a token, a password or a unique id.

    It errs towards True: a false alarm costs one setting, a miss costs a key.
    """
    if _KNOWN.search(text) or _PEM.search(text) or _USER_INFO.search(text) or _UUID.search(text):
        return True
    for match in _RUN.finditer(text):
        run = match.group()
        kinds = any(c.isdigit() for c in run) + any(c.islower() for c in run) + any(c.isupper() for c in run)
        if kinds == 3 or (len(run) >= 32 and kinds == 2 and any(c.isdigit() for c in run)):
            return True
    return False


def _names_secret(name: str) -> bool:
    """Tell whether an option or variable of this name holds a secret (``--hf-token``, ``API_KEY``)."""
    # Word by word, so that --tokenizer and --max-tokens keep their values.
    words = [word.lower() for word in _WORD.findall(name[-200:])]
    if not words:
        return False
    if words[-1] in _SECRET_WORDS:
        return True
    return words[-1] == "key" and (len(words) == 1 or words[-2] in _KEY_WORDS)


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of ``environment`` that may stand in a case, sorted by name.

    Args:
        environment: ``os.environ`` or the same of another process.

    Returns:
        Names out of :data:`ALLOWED` only; values of at most
        ``MAX_VALUE_CHARACTERS``; none that is a path or looks like a secret.
    """
    kept = {}
    for name in sorted(ALLOWED & environment.keys()):
        value = environment[name]
        if name in BASE_NAME_ONLY:
            # The loader takes colons and spaces between libraries.
            value = ":".join(part.rsplit("/", 1)[-1] for part in re.split(r"[:\s]+", value) if part)
        if looks_secret(value) or "/" in value or "\\" in value or not value.isprintable():
            continue
        kept[name] = _cut(value, MAX_VALUE_CHARACTERS)
    return kept


def clean_command(arguments: Sequence[str], host: str | None = None) -> tuple[str, ...]:
    """Return a command line without secrets, home directories and the host's name.

    Args:
        arguments: argv; at most ``MAX_ARGUMENTS`` are kept.
        host: the host name to take out; None for this machine's own.

    Returns:
        The arguments; what was taken out reads ``[removed]``, a home directory
        ``~``, the host name ``HOST``.  Cleaning twice changes nothing more.
    """
    names = _host_names(this_host() if host is None else host)
    cleaned = []
    value_is_secret = False
    for argument in arguments[:MAX_ARGUMENTS]:
        # A file name that is no UTF-8 reaches argv as lone surrogates, which JSON readers refuse.
        text = argument[:MAX_ARGUMENT_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8")
        if value_is_secret and not text.startswith("--"):
            cleaned.append(REMOVED)
            value_is_secret = False
            continue
        name, equals, value = text.partition("=")
        value_is_secret = not equals and text.startswith("-") and _names_secret(text)
        secret = bool(equals and value) and _names_secret(name)
        text = f"{name}={REMOVED}" if secret else _clean_text(text, names)
        cleaned.append(_cut(text, MAX_ARGUMENT_CHARACTERS))
    return tuple(cleaned)


def clean_name(name: str, host: str | None = None) -> str:
    """Return a file's base name without the host's name.

    The driver calls a core dump ``core_TIME_HOST_PID.nvcudmp`` when nothing else
    is said, so that a name alone can tell where it was written.
    """
    name = re.sub(r"\A(core_[0-9]+)_.{1,253}_([0-9]+(?:\.nvcudmp)?)\Z", r"\1_\2", name)
    return _without_hosts(name, _host_names(this_host() if host is None else host))


def this_host() -> str:
    """Return this machine's host name, to be taken out; empty when the system does not say."""
    uname = getattr(os, "uname", None)
    return str(uname().nodename) if uname is not None else os.environ.get("COMPUTERNAME", "")


def _host_names(host: str) -> tuple[str, ...]:
    # Very short or general names ("gpu", "main") would eat parts of innocent words.
    short = host.partition(".")[0]
    return tuple(name for name in dict.fromkeys((host, short)) if len(name) >= 4 and name != "localhost")


def _without_hosts(text: str, hosts: tuple[str, ...]) -> str:
    for host in hosts:
        if host in text:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", "HOST", text)
    return text


def _clean_text(text: str, hosts: tuple[str, ...]) -> str:
    text = _USER_INFO.sub(f"{REMOVED}@", text)
    text = _without_hosts(_HOME.sub("~", text), hosts)
    if not looks_secret(text):
        return text
    name, equals, _ = text.partition("=")
    return f"{name}={REMOVED}" if equals and not looks_secret(name) else REMOVED


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
