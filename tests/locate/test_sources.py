"""Names of kernel parameters and source lines; nothing outside the folders that were named."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from conftest import slowdown
from cuwhy.locate.sources import SourceBook
from cuwhy.model.place import Frame, Place


def names(file: str, text: str, kernel: str) -> list[str]:
    place = Place(kernel, frames=(Frame(kernel, f"/demo/{file}", 1),))
    return SourceBook({file: text}).parameters(place, kernel)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global__ void k(const float* in, float *out, int n) {", ["in", "out", "n"]),
        ("template <class T, int N = 4>\n__global__ void __launch_bounds__(256, 2) k(T (&m)[4], T (*f)(int, T)) {}", ["m", "f"]),
        ("__global__ void k(std::pair<int, int> p, int n = max(1, 2), float a[3] /* , x */) // y\n{", ["p", "n", "a"]),
        ("void k(int wrong);\n__global__ void other(int a) { k(1); }\n__global__ void k(int right) {", ["right"]),
        ('extern "C" __global__ void k() {', []),
        ("__global__ void k(int, float x) {", []),
    ],
)  # fmt: skip
def test_cuda(text: str, expected: list[str]) -> None:
    found = names("a.cu", text, "k")
    # An unnamed parameter is the type's last word or leaves all names unknown; never a wrong place.
    assert found == expected or (not expected and len(found) in (0, 2))


def test_triton() -> None:
    text = "@triton.jit\ndef k(x_ptr, n: 'int', BLOCK: tl.constexpr, *, y):\n  pass\n"
    assert names("a.py", text, "k") == ["x_ptr", "n", "y"]
    assert names("a.py", "def k(:", "k") == []


def test_hostile_sources_end_in_time() -> None:
    start = time.process_time()
    for text in (
        "/*" * 900_000,
        "__global__ " * 150_000,
        "k (" * 500_000,
        "k" + " " * 1_900_000,
        "(" * 1_000_000,
    ):
        names("a.cu", text, "k")
        names("a.py", text, "k")
    assert time.process_time() - start < 10 * slowdown()


def test_lines_come_only_from_named_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "src", tmp_path / "secret.cu"
    (inside / "sub").mkdir(parents=True)
    (inside / "sub" / "a.cu").write_text("one\n  two  \n")
    (inside / "key.pem").write_text("secret")
    outside.write_text("secret")
    os.symlink(outside, inside / "link.cu")
    book = SourceBook(folders=(inside,))
    assert book.line(Frame("k", "/build/proj/sub/a.cu", 2)) == "two"
    assert book.line(Frame("k", "/build/proj/sub/a.cu", 3)) is None
    for path in (
        str(outside),
        "/x/../secret.cu",
        "../secret.cu",
        "/x/link.cu",
        "/x/key.pem",
        "/etc/passwd",
        "a\0.cu",
    ):
        assert book.line(Frame("k", path, 1)) is None, path
    assert SourceBook(folders=(inside,)).lines(None) is None
