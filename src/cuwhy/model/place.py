"""Places: where in the code something happened."""

from __future__ import annotations

from dataclasses import dataclass

#: Path fragments that mark a file as library code, so that the first frame
#: outside of them is the one the user can change.
LIBRARY_MARKS = (
    "/site-packages/",
    "/dist-packages/",
    "/cuda/include/",
    "/targets/x86_64-linux/include/",
    "/targets/sbsa-linux/include/",
    "/cccl/",
    "/cub/",
    "/thrust/",
    "/libcudacxx/",
    "/cuda/std/",
    "/cutlass/",
    "/cute/",
    "/ATen/",
    "/c10/",
    "/pytorch/aten/",
    "/usr/include/",
    "/lib/python3",
)

#: Headers of the toolkit that can appear without their directory.
LIBRARY_HEADERS = frozenset(
    {
        "sm_20_intrinsics.hpp",
        "sm_30_intrinsics.hpp",
        "sm_32_intrinsics.hpp",
        "sm_60_atomic_functions.hpp",
        "device_atomic_functions.hpp",
        "device_functions.hpp",
        "math_functions.hpp",
        "cuda_fp16.hpp",
        "cuda_bf16.hpp",
        "cuda_fp8.hpp",
        "cooperative_groups.h",
        "vector_functions.hpp",
    }
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One level of a call or inline chain.

    Attributes:
        function: readable function name, or None when the tables do not say.
        file: source path as the compiler saw it, or None without line tables.
        line: 1-based source line, or None.
    """

    function: str | None = None
    file: str | None = None
    line: int | None = None

    @property
    def is_library(self) -> bool:
        """True when the file belongs to a library rather than to the user."""
        if self.file is None:
            return False
        if any(mark in self.file for mark in LIBRARY_MARKS):
            return True
        return self.file.rsplit("/", 1)[-1] in LIBRARY_HEADERS

    @property
    def short(self) -> str:
        """``file.cu:12``: the base name and the line, for a first line of output."""
        if self.file is None:
            return self.function or "?"
        base = self.file.rsplit("/", 1)[-1]
        return f"{base}:{self.line}" if self.line is not None else base


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a kernel an instruction stands.

    Attributes:
        function: mangled symbol of the function that holds the instruction.
        offset: distance in bytes from the entry of that function.
        pc: absolute device address of the instruction, 0 when unknown.
        frames: inline chain, innermost first, then call frames; empty without
            line tables.
        sass: the instruction's text, when a disassembler was at hand.
        ptx: the PTX statement the instruction came from, when embedded.
        name: readable base name of ``function``; empty when it has none of its own.
    """

    function: str
    offset: int = 0
    pc: int = 0
    frames: tuple[Frame, ...] = ()
    sass: str | None = None
    ptx: str | None = None
    name: str = ""

    @property
    def innermost(self) -> Frame | None:
        """The frame the instruction itself belongs to."""
        return self.frames[0] if self.frames else None

    @property
    def user(self) -> Frame | None:
        """The first frame outside library code, else the innermost one."""
        for frame in self.frames:
            if frame.file is not None and not frame.is_library:
                return frame
        return self.innermost

    @property
    def short(self) -> str:
        """``oob.cu:5``, or symbol and offset when there are no line tables."""
        frame = self.user
        if frame is not None and frame.file is not None:
            return frame.short
        return f"{self.name or self.function}+{self.offset:#x}"
