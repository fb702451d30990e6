"""``cuwhy profile`` around real programs; ncu is a stand-in that leaves a report which the real one wrote (rotate.cu)."""

from __future__ import annotations

import json
import lzma
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cuwhy
from cuwhy.capture.profiling import split_python
from cuwhy.model.errors import InputError

HERE = Path(__file__).parent
DATA = HERE.parent.parent / "profiles" / "data"
pytest.importorskip("ncu_report", reason="NVIDIA's reader exists for x86-64 Linux only")

PROGRAM = "import sys; print('result 42'); print('a warning', file=sys.stderr)"


@dataclass
class Ended:
    code: int
    out: bytes
    err: str


@dataclass
class Place:
    folder: Path
    environment: dict[str, str]

    def run(self, *arguments: str | Path, **variables: str) -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", "cuwhy", "profile", *map(str, arguments)],
            cwd=self.folder / "work", env={**self.environment, **variables}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr.decode())

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def reports(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "work").glob("*.ncu-rep"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    for name in ("work", "bin", "tmp"):
        (tmp_path / name).mkdir()
    fake = tmp_path / "bin" / "ncu"
    fake.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "fake_ncu.py"}" "$@"\n')
    fake.chmod(0o755)
    (tmp_path / "rotate.ncu-rep").write_bytes(lzma.decompress((DATA / "rotate.ncu-rep.xz").read_bytes()))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUWHY", "FAKE_"))}
    return Place(
        tmp_path,
        {
            **kept,
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
            "TMPDIR": str(tmp_path / "tmp"),
            "FAKE_REPORT": str(tmp_path / "rotate.ncu-rep"),
            "FAKE_CALLS": str(tmp_path / "calls"),
        },
    )


def python(code: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code)


def test_two_phases(place: Place) -> None:
    ended = place.run("--source", DATA, *python(PROGRAM))
    assert ended.code == 0
    # The first run's output is the user's, once and untouched; the second one's is put aside.
    assert ended.out == b"result 42\n"
    assert ended.err.count("a warning\n") == 1
    survey, measured = place.calls()
    assert survey["--metrics"] == ["gpu__time_duration.sum"]
    assert "--section" not in survey
    assert (measured["--kernel-name"], measured["--launch-count"]) == (["rotate"], ["1"])
    assert {"SpeedOfLight", "SourceCounters", "WarpStateStats"} <= set(measured["--section"])
    assert all(call["--clock-control"] == ["none"] for call in (survey, measured))
    assert all(call["command"] == [sys.executable, "-c", PROGRAM] for call in (survey, measured))
    (name,) = place.reports()
    assert re.fullmatch(r"cuwhy-\d{8}-\d{6}-gpu0-rotate\.ncu-rep", name)
    assert name in ended.err
    # What was measured: see tests/profiles for where these numbers come from.
    assert "100.0 %          1" in ended.err
    assert re.search(r"excess shared wavefronts +93\.9 %", ended.err)
    # The cause, and the declaration to pad.
    assert "access-pattern/shared-bank-conflict" in ended.err
    assert "__shared__ float tile[32][32];" in ended.err
    # 128 x 128 blocks of 8 warps, 4 reads of a column each: 31 wavefronts too many every time.
    excess = 128 * 128 * 8 * 4 * 31
    assert f"rotate.cu:35: 100 % of the excess shared wavefronts ({excess:,})" in ended.err
    assert "tile[threadIdx.x][j]" in ended.err
    assert list((place.folder / "tmp").iterdir()) == []


def test_a_named_kernel_needs_one_run(place: Place) -> None:
    ended = place.run("--kernel", "^rot", "--launch", "3", "--nvtx", "step", *python(PROGRAM))
    assert ended.code == 0
    (call,) = place.calls()
    assert (call["--kernel-name"], call["--launch-skip"]) == (["regex:^rot"], ["2"])
    # A range can have been pushed or started: ncu writes the two differently.
    assert call["--nvtx-include"] == ["step/", "step"]
    assert ended.out == b"result 42\n"
    assert len(place.reports()) == 1


def test_names_do_not_collide(place: Place) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "cuwhy", "profile", "--kernel", "rotate", *python(PROGRAM)],
            cwd=place.folder / "work", env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]  # fmt: skip
    assert [run.communicate(timeout=60) and run.returncode for run in runs] == [0, 0, 0]
    assert len(place.reports()) == 3


@pytest.mark.parametrize("what", ["cut", "refuse", "failed"])
def test_a_report_that_will_not_do_is_made_anew_and_narrower(place: Place, what: str) -> None:
    ended = place.run("--kernel", "rotate", *python(PROGRAM), FAKE_NCU=f"{what},ok")
    assert ended.code == 0
    wide, narrow = place.calls()
    asked = [
        len(call["--section"]) + len(call.get("--metrics", [""])[0].split(",")) for call in (wide, narrow)
    ]
    assert asked[1] < asked[0]
    assert len(place.reports()) == 1
    reason = {
        "cut": "cut off or damaged",
        "refuse": "Failed to find metric",
        "failed": 'Failed to profile "rotate"',
    }
    assert reason[what] in ended.err or "returned an error code" in ended.err


def test_nothing_whole_at_all(place: Place) -> None:
    ended = place.run("--kernel", "rotate", *python(PROGRAM), FAKE_NCU="cut,cut,cut")
    assert ended.code == 1
    assert len(place.calls()) == 3
    assert "no profile of kernel rotate" in ended.err
    assert "cut off or damaged" in ended.err
    assert place.reports() == []


def test_a_report_of_another_kernel_is_not_believed(place: Place) -> None:
    ended = place.run("--kernel", "softmax", *python(PROGRAM))
    assert len(place.calls()) == 3
    assert "it holds rotate, which was not asked for" in ended.err


def test_no_such_launch(place: Place) -> None:
    ended = place.run("--kernel", "softmax", *python(PROGRAM), FAKE_NCU="nothing")
    assert ended.code == 1
    assert len(place.calls()) == 1
    assert "there was no such launch" in ended.err
    assert "the program launched rotate, fill_kernel" in ended.err


def test_no_kernel_at_all(place: Place) -> None:
    ended = place.run(*python(PROGRAM), FAKE_NCU="nothing")
    assert ended.code == 1
    assert "no kernel was launched" in ended.err
    assert ended.out == b"result 42\n"


def test_counters_forbidden(place: Place) -> None:
    ended = place.run("--kernel", "rotate", *python(PROGRAM), FAKE_NCU="denied")
    assert ended.code == 1
    assert len(place.calls()) == 1
    assert "ERR_NVGPUCTRPERM" in ended.err
    assert "NVreg_RestrictProfilingToAdminUsers=0" in ended.err
    assert "--cap-add=SYS_ADMIN" in ended.err
    assert ended.out == b"result 42\n"


def test_counters_forbidden_before_anything_is_known(place: Place) -> None:
    ended = place.run(*python(PROGRAM), FAKE_NCU="denied")
    assert ended.code == 1
    assert len(place.calls()) == 1
    assert "nsys (Nsight Systems) and, for Python, PyTorch's profiler can time kernels" in ended.err


def test_the_programs_exit_code(place: Place) -> None:
    ended = place.run("--kernel", "rotate", *python("import sys; print('x'); sys.exit(3)"))
    assert ended.code == 3
    assert "the program ended with exit code 3" in ended.err
    assert ended.out == b"x\n"


def test_the_budget_ends_the_program(place: Place) -> None:
    mark = f"{place.folder}/alive"
    code = f"import time, pathlib\nwhile True: pathlib.Path({mark!r}).touch(); time.sleep(0.05)"
    begin = time.monotonic()
    ended = place.run("--budget", "2s", "--kernel", "rotate", *python(code))
    assert time.monotonic() - begin < 15
    assert ended.code == 1
    assert "when the budget was spent" in ended.err
    os.unlink(mark)
    time.sleep(0.3)
    assert not os.path.exists(mark), "the program still runs"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kernel", "(", "--", "true"), "no regular expression"),
        (("--out", "nowhere", "--", "true"), "no such folder"),
        (("--kernel", "k"), "no command to profile"),
        (("--launch", "0", "--", "true"), "not the number of a launch"),
    ],
)
def test_what_cannot_be_asked(place: Place, arguments: tuple[str, ...], words: str) -> None:
    ended = place.run(*arguments)
    assert ended.code == 2
    assert words in ended.err
    assert place.calls() == []


def test_without_ncu(place: Place) -> None:
    (place.folder / "bin" / "ncu").unlink()
    if any(Path(folder, "bin/ncu").exists() for folder in ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")):
        pytest.skip("ncu is installed")
    ended = place.run(*python(PROGRAM))
    assert (ended.code, ended.out) == (2, b"")
    assert "ncu (Nsight Compute) is not installed here" in ended.err


NSYS = """#!/bin/sh
if [ "$1" = profile ]; then
  while [ "$1" != --output ]; do shift; done
  touch "$2.nsys-rep"; shift 2; exec "$@"
fi
echo 'Processing [survey.sqlite] with [cuda_gpu_trace.py]...'
echo 'Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,Device,Ctx,Strm,Name'
echo '9000,3000,111,128,128,1,32,8,1,28,NVIDIA H200 (0),1,7,"rotate(const float *, float *, int)"'
echo '9900,3000,112,128,128,1,32,8,1,28,NVIDIA H200 (0),1,7,"rotate(const float *, float *, int)"'
"""


def test_nsys_comes_first(place: Place) -> None:
    (place.folder / "bin" / "nsys").write_text(NSYS)
    (place.folder / "bin" / "nsys").chmod(0o755)
    ended = place.run(*python(PROGRAM))
    assert (ended.code, ended.out) == (0, b"result 42\n")
    (call,) = place.calls()
    assert call["--kernel-name"] == ["rotate"]
    assert "0.006 ms in 2 launches (Nsight Systems)" in ended.err
    # What it cannot tell is left to ncu.
    ended = place.run("--nvtx", "step", *python(PROGRAM))
    assert len(place.calls()) == 3


def test_interrupted(place: Place) -> None:
    mark = place.folder / "alive"
    code = f"import time, pathlib\nwhile True: pathlib.Path({str(mark)!r}).touch(); time.sleep(0.05)"
    run = subprocess.Popen(
        [sys.executable, "-m", "cuwhy", "profile", "--kernel", "rotate", *python(code)],
        cwd=place.folder / "work", env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    end = time.monotonic() + 20
    while not mark.exists() and time.monotonic() < end:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 130
    assert err.decode().endswith("cuwhy: interrupted\n")
    mark.unlink()
    time.sleep(0.3)
    assert not mark.exists(), "the program still runs"
    assert list((place.folder / "tmp").iterdir()) == []


# -- PyTorch's profiler --------------------------------------------------------------------


def torch_trace(place: Place) -> dict[str, str]:
    """The variables under which the stand-in for PyTorch leaves a trace with ten launches."""
    args = {
        "device": 0,
        "grid": [132, 1, 1],
        "block": [1024, 1, 1],
        "registers per thread": 64,
        "shared memory": 0,
    }
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "void rotate<4>(float*)",
            "ts": i,
            "dur": 1 if i < 3 else 50,
            "args": args,
        }
        for i in range(10)
    ]
    devices = [{"computeMajor": 9, "computeMinor": 0, "numSms": 132}]
    path = place.folder / "given.json"
    path.write_text(json.dumps({"deviceProperties": devices, "traceEvents": events}))
    inherited = os.environ.get("PYTHONPATH", "")
    return {"FAKE_TRACE": str(path), "PYTHONPATH": f"{HERE / 'fake_torch'}:{inherited}"}


def test_python_programs_are_timed_by_pytorch(place: Place) -> None:
    script = place.folder / "work" / "train.py"
    script.write_text("import sys\nprint('trained', sys.argv[1:])\n")
    ended = place.run("--", sys.executable, "train.py", "--steps", "2", **torch_trace(place))
    assert ended.code == 0
    assert ended.out == b"trained ['--steps', '2']\n"
    # One run under ncu only, of the first long launch: the fourth.
    (call,) = place.calls()
    assert (call["--kernel-name"], call["--launch-skip"]) == (["rotate"], ["3"])
    assert "10 launches" in ended.err


def test_what_can_be_said_without_counters(place: Place) -> None:
    script = place.folder / "work" / "train.py"
    script.write_text("print('trained')\n")
    ended = place.run("--", sys.executable, "train.py", **torch_trace(place), FAKE_NCU="denied")
    assert ended.code == 1
    assert "100.0 %         10" in ended.err
    # 1024 threads of 64 registers: 65536 registers, all that an SM has, for half of its 64 warps.
    assert "rotate: at most 50 % occupancy, limited by registers; 1.00 waves" in ended.err


def runner(*arguments: str | Path, **options: Any) -> list[str]:
    import cuwhy.capture

    path = Path(cuwhy.capture.__file__).with_name("trace_program.py")
    return [sys.executable, str(path), str(options["out"]), *map(str, arguments)]


SCRIPT = """\
import sys, os
import beside
print(sys.argv, sys.path[0], __name__, __file__, beside.VALUE)
def inner():
    {end}
inner()
"""


@pytest.mark.parametrize("kind", ["script", "module"])
@pytest.mark.parametrize(
    "end", ["pass", "sys.exit(3)", "sys.exit('words')", "raise ValueError('odd')", "1 / 0"]
)
def test_the_runner_is_not_noticed(place: Place, kind: str, end: str) -> None:
    work = place.folder / "work"
    (work / "beside.py").write_text("VALUE = 7\n")
    (work / "prog.py").write_text(SCRIPT.format(end=end))
    variables = {**place.environment, **torch_trace(place)}
    plain = [sys.executable, *(("prog.py",) if kind == "script" else ("-m", "prog")), "a", "-b"]
    traced = runner(
        kind, "prog.py" if kind == "script" else "prog", "a", "-b", out=place.folder / "trace.json"
    )
    seen = []
    for argv in (plain, traced):
        done = subprocess.run(
            argv, cwd=work, env=variables, capture_output=True, text=True, timeout=30, check=False
        )
        # Python itself shows the module loader's frames below -m; only the program's own matter.
        frames = [line for line in done.stderr.splitlines() if "runpy" not in line and "_run_" not in line]
        seen.append(
            (done.returncode, done.stdout.replace(f"{work}/", "").replace(str(work), ""), frames[-6:])
        )
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] == seen[1][1]
    assert [line.replace(f"{work}/", "") for line in seen[0][2]] == [
        line.replace(f"{work}/", "") for line in seen[1][2]
    ]
    assert (place.folder / "trace.json").exists()


def test_without_pytorch_the_program_runs_all_the_same(place: Place) -> None:
    script = place.folder / "work" / "prog.py"
    script.write_text("print('fine')\n")
    argv = [sys.executable, "-S", *runner("script", script, out=place.folder / "trace.json")[1:]]
    done = subprocess.run(argv, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"fine\n", b"")
    assert not (place.folder / "trace.json").exists()


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("python train.py -m x", (("python",), "script", ("train.py", "-m", "x"))),
        ("/opt/bin/python3.12 -u -X dev -W ignore a.py", (("/opt/bin/python3.12", "-u", "-X", "dev", "-W", "ignore"), "script", ("a.py",))),
        ("python -Wignore -m pkg.mod --c", (("python", "-Wignore"), "module", ("pkg.mod", "--c"))),
        ("python -c pass", None),
        ("python -Bc pass", None),
        ("python -m", None),
        ("python", None),
        ("python -", None),
        ("torchrun train.py", None),
        ("./simulate", None),
    ],
)  # fmt: skip
def test_split_python(command: str, parts: object) -> None:
    assert split_python(command.split()) == parts


# -- in Python -------------------------------------------------------------------------------


def test_diagnose_kernel(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("PATH", "FAKE_REPORT", "FAKE_CALLS", "TMPDIR"):
        monkeypatch.setenv(name, place.environment[name])
    command = [sys.executable, "-c", PROGRAM]
    monkeypatch.setenv("FAKE_NCU", "nothing")
    with pytest.raises(InputError, match="there was no such launch"):
        cuwhy.diagnose_kernel("softmax", command)
    (place.folder / "calls").unlink()
    monkeypatch.setenv("FAKE_NCU", "denied")
    with pytest.raises(InputError, match="counters may not be read"):
        cuwhy.diagnose_kernel("rotate", command)
    (place.folder / "calls").unlink()
    monkeypatch.setenv("FAKE_NCU", "ok")
    diagnosis = cuwhy.diagnose_kernel("rot", command, sources=[DATA])
    assert diagnosis.primary is not None
    assert diagnosis.primary.cause.name == "access-pattern/shared-bank-conflict"
    assert diagnosis.primary.place is not None
    assert diagnosis.primary.place.short == "rotate.cu:35"
    assert capfd.readouterr() == ("", "")
