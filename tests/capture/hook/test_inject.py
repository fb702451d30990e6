"""The hook gets into every Python program, and leaves it as it would have been."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuwhy.capture.hook import STACKS, deaf_option, hook_variables, inject_folder

from .conftest import FAKE, Bench

STATE = """\
import sys, site
print(sys.path)
print(sorted(name for name in sys.modules if "customize" in name))
print(sys.excepthook is sys.__excepthook__, [type(f).__name__ for f in sys.meta_path if "cuwhy" in repr(f)])
"""


@pytest.mark.parametrize("options", [(), ("-u",), ("-O",), ("-s",)])
def test_a_program_sees_what_it_would_have_seen(bench: Bench, options: tuple[str, ...]) -> None:
    ended = bench.both(STATE, *options)
    assert ended.code == 0
    assert str(inject_folder()).encode() not in ended.out


def test_the_users_own_sitecustomize_runs(bench: Bench) -> None:
    own = bench.work / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(
        "import sys\nprint('mine', __name__, __spec__.name, __file__)\nVALUE = 7\n"
    )
    (own / "usercustomize.py").write_text("print('user')\n")
    code = "import sitecustomize\nprint(sitecustomize.VALUE, sitecustomize.__file__)\n"
    ended = bench.both(code, PYTHONPATH=str(own))
    assert ended.out.startswith(b"mine sitecustomize sitecustomize ")
    assert b"\n7 " in ended.out


@pytest.mark.parametrize(
    "own",
    ["raise ValueError('mine')\n", "import no_such_module\n", "def\n"],
)
def test_a_sitecustomize_that_fails_is_reported_as_by_python(bench: Bench, own: str) -> None:
    (bench.work / "sitecustomize.py").write_text(own)
    ended = bench.both("print('went on')\n", PYTHONPATH=str(bench.work))
    assert ended.out == b"went on\n"
    assert ended.err


def test_isolated_python_is_left_alone(bench: Bench) -> None:
    bench.both("import sys\nprint(sys.flags.isolated)\n", "-I")
    assert not list(bench.run.iterdir())


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("python -I x.py", "-I"),
        ("python3.12 -uES x.py", "-E"),
        ("python -X dev -S x.py", "-S"),
        ("python -Wignore -m pkg -I", ""),
        ("python x.py -I", ""),
        ("python -c code -S", ""),
        ("python -mpkg -S", ""),
        ("./train -I", ""),
        ("", ""),
    ],
)
def test_options_that_keep_the_hook_out_are_seen(command: str, option: str) -> None:
    assert deaf_option(command.split()) == option


def test_the_users_search_path_stays_behind_ours(tmp_path: Path) -> None:
    assert hook_variables({}, tmp_path, "off")["PYTHONPATH"] == str(inject_folder())
    added = hook_variables({"PYTHONPATH": "a:b"}, tmp_path, "off")
    assert added["PYTHONPATH"] == f"{inject_folder()}:a:b"


@pytest.mark.parametrize("value", ["", "1", "1:x:off:/nowhere", "2:44:off:{run}", "1:999:off:{run}"])
def test_a_broken_variable_does_nothing(bench: Bench, value: str) -> None:
    environment = bench.environment() | {"CUWHY_HOOK": value.format(run=bench.run)}
    command = [sys.executable, "-c", "print('fine')"]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"fine\n", b"")


def test_children_of_any_kind_have_the_hook(bench: Bench) -> None:
    code = (
        "import multiprocessing as m, os, subprocess, sys\n"
        "if __name__ == '__main__':\n"
        "    subprocess.run([sys.executable, '-m', 'platform'], stdout=subprocess.DEVNULL)\n"
        "    subprocess.run([sys.executable, '-c', ''], env={**os.environ, 'RANK': '1'})\n"
        "    for kind in ('spawn', 'fork'):\n"
        "        p = m.get_context(kind).Process(target=print, args=(kind,)); p.start(); p.join()\n"
    )
    ended = bench.both(code)
    assert ended.out.split() == [b"spawn", b"fork"]
    # This one, two programs, the spawned worker (and its resource tracker, of some versions), the fork.
    assert len(list(bench.run.glob("stacks.*.txt"))) >= 5


def test_stacks_of_all_threads_on_a_signal(bench: Bench) -> None:
    code = (
        "import os, threading, time\n"
        "def deep(): time.sleep(60)\n"
        "threading.Thread(target=deep, daemon=True).start()\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "deep()\n"
    )
    process = subprocess.Popen(
        [sys.executable, bench.program(code)], env=bench.environment(), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        for pid, threads in ((process.pid, 2), (child, 1)):
            path = bench.run / f"stacks.{pid}.txt"
            end = time.monotonic() + 10
            while not path.exists() and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.1)
            os.kill(pid, STACKS)
            while path.read_text().count("line ") < threads + 1 and time.monotonic() < end:
                time.sleep(0.01)
            text = path.read_text()
            assert len(re.findall(r"hread 0x", text)) == threads
            assert 'program.py", line 2 in deep' in text
        assert process.poll() is None, "the program goes on"
    finally:
        os.kill(child, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_signal_that_the_parent_ignores_is_left_alone(bench: Bench) -> None:
    command = [sys.executable, "-c", f"import signal; print(signal.getsignal({int(STACKS)}))"]
    done = subprocess.run(
        command, env=bench.environment(), capture_output=True, timeout=30, check=False,
        preexec_fn=lambda: signal.signal(STACKS, signal.SIG_IGN),
    )  # fmt: skip
    assert done.stdout == b"1\n", "SIG_IGN, as it was"
    assert not list(bench.run.iterdir())


@pytest.mark.slow
def test_the_start_of_python_costs_less_than_two_milliseconds(bench: Bench) -> None:
    command = [sys.executable, "-X", "importtime", "-c", "pass"]
    took = []
    for _ in range(15):
        environment = {**bench.environment(), "PYTHONPYCACHEPREFIX": str(bench.work / "cache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(command, env=environment, capture_output=True, timeout=30, check=True)
        rows = [line.split(b"|") for line in done.stderr.splitlines() if b"sitecustomize" in line]
        took.append(max(int(row[1]) for row in rows))
    # In microseconds; what is more than the least is other load on this machine.
    assert min(took) < 2000, took


def test_torch_is_found_as_without_the_hook(bench: Bench) -> None:
    code = (
        "import torch, sys, importlib, inspect\n"
        "print(type(torch.__spec__), vars(torch.__loader__), type(torch.__loader__), torch.__spec__.origin)\n"
        "print(inspect.getsource(torch)[:40])\n"
        "importlib.reload(torch)\n"
        "print([type(f).__name__ for f in sys.meta_path])\n"
    )
    ended = bench.both(code)
    assert (ended.code, ended.err) == (0, b"")


def test_a_missing_torch_is_missing_as_before(bench: Bench) -> None:
    code = "import sys\nfor _ in range(2):\n    try: import torch\n    except ImportError as e: print(e)\nimport torch\n"
    ended = bench.both(code, PYTHONPATH=str(bench.work / "nothing"))
    assert b"No module named 'torch'" in ended.out
    # Found later, when the path has it.
    late = f"try: import torch\nexcept ImportError: pass\nimport sys; sys.path.append({str(FAKE)!r})\nimport torch; torch.fail()\n"
    bench.both(late, PYTHONPATH=str(bench.work / "nothing"))
    assert len(bench.written) == 1


def test_a_torch_that_cannot_be_imported_fails_as_before(bench: Bench) -> None:
    (bench.work / "torch").mkdir()
    (bench.work / "torch" / "__init__.py").write_text("raise OSError('libcudart.so.13: cannot open')\n")
    ended = bench.both("import torch\n", PYTHONPATH=str(bench.work))
    assert b"OSError: libcudart" in ended.err
