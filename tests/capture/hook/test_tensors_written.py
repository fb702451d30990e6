"""What the hook writes at a CUDA error, what it leaves alone, and that the program ends as it would have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from .conftest import SNAPSHOT, Bench

ROOT = Path(__file__).parent.parent.parent.parent
FAIL = "torch.fail()\n"
NET = """\
import torch
T = torch.Tensor
class Net(torch.nn.Module):
    def forward(self, x):
        y = T(0x2000, (4, 4))
        parts = [y, {"key": T(0x3000, (2,)), 7: T(0x3100), "a b": T(0x3200)}]
        torch.fail()
W = T(0x9000, (7,))
def main():
    x = T(0x1000, (256, 256), "torch.bfloat16")
    net = Net(weight=T(0x5000, needs=True), inner=torch.nn.Module(bias=T(0x6000)))
    net.__dict__["cache"] = {"k": T(0x7000)}
    W.size()
    net.forward(x)
main()
"""


def test_the_tensors_of_the_traceback_are_named(bench: Bench) -> None:
    ended = bench.both(NET, FAKE_SNAPSHOT=str(SNAPSHOT))
    assert ended.code == 1
    assert ended.err.startswith(b"Traceback (most recent call last):\n")
    (content,) = bench.written
    tensors = {t["name"]: t for t in content["tensors"]}
    assert set(tensors) == {
        "self.weight", "self.inner.bias", "self.cache['k']", "x", "y", "parts[1]['key']", "parts[1][7]",
        "parts[1][item 2]", "W",
    }  # fmt: skip
    x = tensors["x"]
    assert (x["shape"], x["stride"], x["dtype"], x["pointer"]) == ([256, 256], [256, 1], "bfloat16", "0x1000")
    assert (x["device"], x["storage_bytes"], x["itemsize"], x["offset"]) == ("cuda:0", 1 << 18, 4, 0)
    frame = content["frames"][x["frame"]]
    assert frame[0].endswith("program.py")
    assert (frame[1], frame[2].rpartition(".")[2]) == (7, "forward")
    assert content["frames"][tensors["W"]["frame"]][1:] == [14, "main"]
    assert tensors["self.weight"]["requires_grad"] is True
    assert content["exception"] == "AcceleratorError"
    assert content["message"] == "CUDA error: an illegal memory access was encountered"


def test_the_file_fits_the_schema(bench: Bench) -> None:
    bench.start(NET, FAKE_SNAPSHOT=str(SNAPSHOT), RANK="3", LOCAL_RANK="1")
    (content,) = bench.written
    schema = json.loads((ROOT / "docs" / "tensors.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(content)
    assert (content["rank"], content["local_rank"]) == (3, 1)


def test_the_allocators_blocks_and_who_freed_them(bench: Bench) -> None:
    bench.start(NET, FAKE_SNAPSHOT=str(SNAPSHOT))
    (content,) = bench.written
    real = json.loads(SNAPSHOT.read_text())
    assert [int(s["address"], 16) for s in content["segments"]] == [s["address"] for s in real["segments"]]
    blocks = {int(b["address"], 16): b for b in content["blocks"]}
    for number, segment in enumerate(real["segments"]):
        for block in segment["blocks"]:
            row = blocks.pop(block["address"])
            assert (row["size"], row["requested"], row["state"], row["segment"]) == (
                block["size"], block["requested_size"], block["state"], number,
            )  # fmt: skip
            if block["frames"]:
                first = content["frames"][content["stacks"][row["stack"]][0]]
                wanted = block["frames"][0]
                assert first == [wanted["filename"], wanted["line"], wanted["name"]]
    assert not blocks
    frees = [e for e in real["device_traces"][0] if e["action"] == "free_completed"]
    assert [int(f["address"], 16) for f in content["freed"]] == [e["addr"] for e in reversed(frees)]
    last = content["freed"][0]
    for key, line in (("allocated", 16), ("freed", 16)):
        assert content["frames"][content["stacks"][last[key]][0]] == ["/demo/crash.py", line, "main"]


CAUGHT = [
    "try: torch.fail()\nexcept RuntimeError as e: raise SystemError('mine') from e\n",
    "try: torch.fail()\nexcept RuntimeError: raise SystemError('mine')\n",
    "raise RuntimeError('Triton Error [CUDA]: device-side assert triggered')\n",
    "raise ValueError('cudaErrorIllegalAddress: an illegal memory access')\n",
    "import threading\nthreading.Thread(target=torch.fail).start()\n",
    "import sys\nsys.excepthook = lambda *a: print('own hook', a[0].__name__)\ntorch.fail()\n",
    "import sys, atexit\natexit.register(print, 'bye')\ntorch.fail()\n",
    "import sys\nsys.exit(sys.excepthook(*sys.exc_info())) if 0 else torch.fail('CUDA error: misaligned address')\n",
]


@pytest.mark.parametrize("code", CAUGHT)
def test_every_way_to_end_by_a_cuda_error_is_seen(bench: Bench, code: str) -> None:
    bench.both("import torch\nt = torch.Tensor(0x1000)\n" + code)
    assert len(bench.written) == 1


def test_a_hook_that_was_there_before_torch_is_called(bench: Bench) -> None:
    code = (
        "import sys\ndef mine(*a): print('mine', a[1])\nsys.excepthook = mine\nimport torch\ntorch.fail()\n"
    )
    assert bench.both(code).out == b"mine CUDA error: an illegal memory access was encountered\n"
    assert len(bench.written) == 1


@pytest.mark.parametrize("kind", ["spawn", "fork", "forkserver"])
def test_workers_of_multiprocessing_leave_theirs(bench: Bench, kind: str) -> None:
    code = (
        "import multiprocessing as m, torch, sys\n"
        "def work(n):\n    t = torch.Tensor(n)\n    torch.fail()\n"
        "def wrapped(n):\n    try: work(n)\n    except Exception: sys.exit(1)\n"
        "if __name__ == '__main__':\n"
        "    c = m.get_context(sys.argv[1] if sys.argv[1:] else KIND)\n"
        "    for f in (work, wrapped):\n"
        "        p = c.Process(target=f, args=(1,)); p.start(); p.join(); print(p.exitcode)\n"
    ).replace("KIND", repr(kind))
    ended = bench.start(code)
    assert ended.out == b"1\n1\n"
    assert [[t["name"] for t in c["tensors"] if t["name"] == "t"] for c in bench.written] == [["t"], ["t"]]


FINE = [
    "print('well')\n",
    "raise ValueError('no CUDA here')\n",
    "raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')\n",
    "try: torch.fail()\nexcept RuntimeError: pass\n",
    "import sys\nsys.exit(3)\n",
    "import os\nos._exit(4)\n",
    "import os\nos.abort()\n",
]


@pytest.mark.parametrize("code", FINE)
def test_other_endings_leave_nothing(bench: Bench, code: str) -> None:
    bench.both("import torch\n" + code)
    assert bench.written == []


def test_a_fault_that_the_program_handled_is_seen_by_its_dump(bench: Bench) -> None:
    dump = bench.run / "core.%p.nvcudmp"
    code = (
        "import torch, os, sys\nt = torch.Tensor(0x1000)\n"
        "open(os.environ['CUDA_COREDUMP_FILE'].replace('%p', str(os.getpid())), 'w').close()\nsys.exit(3)\n"
    )
    assert bench.start(code, CUDA_COREDUMP_FILE=str(dump)).code == 3
    assert bench.names() == ["t"]


HOSTILE = """\
import torch
class Meta(type):
    def __instancecheck__(c, o): raise SystemExit(9)
    def __subclasscheck__(c, o): raise SystemExit(9)
class Trap(metaclass=Meta):
    __slots__ = ("slot", "unset")
    def __getattr__(s, n): print("asked for", n); raise SystemExit(9)
    def __getattribute__(s, n): print("asked for", n); raise SystemExit(9)
    __class__ = property(lambda s: print("class") or 1 / 0)
    def __eq__(s, o): print("eq"); raise SystemExit(9)
    def __hash__(s): print("hash"); raise SystemExit(9)
    def __len__(s): print("len"); raise SystemExit(9)
    def __iter__(s): print("iter"); raise SystemExit(9)
    def __repr__(s): print("repr"); raise SystemExit(9)
    def __bool__(s): print("bool"); raise SystemExit(9)
class Own:
    def __init__(s): s.inside = torch.Tensor(0x5000)
    p = property(lambda s: print("property") or 1 / 0)
class Dict(dict):
    def items(s): print("items"); raise SystemExit(9)
    def __iter__(s): print("iter"); raise SystemExit(9)
class List(list):
    def __iter__(s): print("iter"); raise SystemExit(9)
class Sub(torch.Tensor):
    shape = property(lambda s: print("shape") or 1 / 0)
    def data_ptr(s): print("data_ptr"); raise SystemExit(9)
    def stride(s): print("stride"); raise SystemExit(9)
    def __getattr__(s, n): print("asked for", n); raise SystemExit(9)
class Error(RuntimeError):
    def __str__(s): return "CUDA error: hostile"
    __cause__ = property(lambda s: print("cause") or 1 / 0)
    def __eq__(s, o): print("eq"); raise SystemExit(9)
def main():
    trap, own, loop = Trap(), Own(), []
    object.__setattr__(trap, "slot", torch.Tensor(0x6000)) if 0 else Trap.slot.__set__(trap, torch.Tensor(0x6000))
    d, l, sub = Dict(k=torch.Tensor(0x7000)), List([torch.Tensor(0x7100)]), Sub(0x8000, (3,))
    loop.append(loop); own.me = own
    wide = {i: torch.Tensor(0x10000 + i) for i in range(100000)}
    deep = []
    for _ in range(100000): deep = [deep]
    text = "secret" * 1000
    raise Error("CUDA error: hostile")
main()
"""


def test_no_code_of_the_users_is_called_and_nothing_is_without_bound(bench: Bench) -> None:
    ended = bench.both(HOSTILE)
    assert ended.out == b""
    (content,) = bench.written
    names = {t["name"] for t in content["tensors"]}
    assert {"trap.slot", "own.inside", "d['k']", "l[0]", "sub", "wide[199]"} <= names
    assert "wide[200]" not in names
    assert next(t for t in content["tensors"] if t["name"] == "sub")["shape"] == [3]
    assert b"secret" not in next(bench.run.glob("tensors.*.json")).read_bytes()


HUGE = """\
import json, sys
def frames(name, line, function): return [{"filename": name, "line": line, "name": function}]
def block(address, asked, f):
    return {"address": address, "size": 512, "requested_size": asked, "state": "active_allocated", "frames": f}
common = {"device": 0, "stream": 0, "segment_type": "small", "frames": []}
far = [block(0x7F0000000000 + i * 512, 500, frames(f"/x/{i % 5000}.py", i % 999, "f")) for i in range(60000)]
events = [
    {"action": "free_completed", "addr": i * 512, "size": 512, "stream": 0, "time_us": i,
     "frames": frames(f"/y/{i}.py", i, "g" * 150)}
    for i in range(60000)
]
segments = [
    {"address": 0x7F0000000000, "total_size": 512 * 60000, "blocks": far, **common},
    {"address": 0x1000, "total_size": 512, "blocks": [block(0x1000, 400, [])], **common},
]
json.dump({"segments": segments, "device_traces": [events]}, open(sys.argv[1], "w"))
"""


def test_a_huge_allocator_is_cut_to_what_matters(bench: Bench) -> None:
    big = bench.work / "big.json"
    # In a process of its own: this one's size would show in the memory of what later tests start.
    subprocess.run([sys.executable, "-c", HUGE, str(big)], check=True, timeout=60)
    bench.both("import torch\nt = torch.Tensor(0x1000, (100,))\n" + FAIL, FAKE_SNAPSHOT=str(big))
    (path,) = bench.run.glob("tensors.*.json")
    assert path.stat().st_size <= 5_000_000
    (content,) = bench.written
    assert content["blocks"][0]["address"] == "0x1000"
    assert content["left_out"]["blocks"] + len(content["blocks"]) == 60001
    assert content["left_out"]["freed"] + len(content["freed"]) == 60000
    assert int(content["freed"][0]["address"], 16) == 59999 * 512


def test_an_allocator_that_fails_costs_the_blocks_only(bench: Bench) -> None:
    (bench.work / "no.json").write_text("no JSON")
    bench.both("import torch\nt = torch.Tensor(0x1000)\n" + FAIL, FAKE_SNAPSHOT=str(bench.work / "no.json"))
    (content,) = bench.written
    assert [t["name"] for t in content["tensors"]] == ["t"]
    assert content["problems"] == ["allocator: JSONDecodeError"]


def test_a_folder_that_is_gone_or_read_only_changes_nothing(bench: Bench) -> None:
    code = "import os, shutil, torch\nshutil.rmtree(os.environ.get('GONE') or '/nowhere', True)\n" + FAIL
    bench.both(code, GONE=str(bench.run))
    assert bench.written == []


def test_a_file_in_the_way_is_not_followed(bench: Bench) -> None:
    code = (
        "import os, sys, torch\n"
        "run = sys.argv[1] if sys.argv[1:] else os.environ['RUN']\n"
        "os.symlink(os.environ['RUN'] + '/victim', run + '/tensors.%d.json.part' % os.getpid())\n" + FAIL
    )
    bench.both(code, RUN=str(bench.run))
    assert not (bench.run / "victim").exists()
    assert bench.written == []


@pytest.mark.parametrize(("history", "calls"), [("off", 0), ("state", 1), ("all", 1)])
def test_the_history_starts_with_cuda_and_not_before(bench: Bench, history: str, calls: int) -> None:
    code = "import torch\nprint(torch.cuda.memory.recorded, len(torch._calls))\nprint(torch.initialise())\n"
    ended = bench.start(code, history=history)
    first, second = ended.out.decode().splitlines()
    assert first == f"[] {calls}"
    if calls:
        assert f"(('{history}',), " in second
        assert f"'context': '{history}', 'stacks': 'python', 'max_entries': " in second
    else:
        assert second == "[]"


def test_a_recording_of_the_users_is_not_replaced(bench: Bench) -> None:
    code = "import torch\ntorch._C._cuda_isHistoryEnabled = lambda: True\nprint(torch.initialise())\n" + FAIL
    assert bench.start(code, history="all").out == b"[]\n"
    assert bench.written[0]["history"] == "user"
