"""The demangler against c++filt's own output, against sources that we know, and against hostile names."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuwhy.locate.demangle import Demangled, demangle

# One symbol and c++filt's text a line: device symbols of PyTorch, cuSPARSELt, bitsandbytes, CUB and Thrust.
SYMBOLS = [
    tuple(line.split("\t"))
    for line in (Path(__file__).parent / "data" / "symbols.txt").read_text(encoding="utf-8").splitlines()
]


def best_of(times: int, symbol: str) -> float:
    """Least wall time in seconds: the machine may be busy with something else."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        demangle(symbol)
        best = min(best, time.process_time() - start)
    return best


def test_fixture_is_whole() -> None:
    assert len(SYMBOLS) >= 140
    assert len({symbol for symbol, _ in SYMBOLS}) == len(SYMBOLS)


@pytest.mark.parametrize(("symbol", "text"), SYMBOLS, ids=[symbol[:40] for symbol, _ in SYMBOLS])
def test_same_as_cxxfilt(symbol: str, text: str) -> None:
    assert demangle(symbol).text == text


@pytest.mark.parametrize(
    ("symbol", "short", "parameters", "kinds"),
    [
        # __global__ void scale_tail(const float*, float*, int)
        (
            "_Z10scale_tailPKfPfi",
            "scale_tail",
            ("float const*", "float*", "int"),
            ("pointer", "pointer", "int32"),
        ),
        # __global__ void k(void)
        ("_Z1kv", "k", (), ()),
        # namespace { __global__ void anon(int*, const __half*, __nv_bfloat16, unsigned char, bool); }
        (
            "_ZN34_GLOBAL__N__9b54b229_4_t_cu__Z2gov4anonEPiPK6__half13__nv_bfloat16hb",
            "anon",
            ("int*", "__half const*", "__nv_bfloat16", "unsigned char", "bool"),
            ("pointer", "pointer", "bfloat16", "uint8", "bool"),
        ),
        # enum class Mode : unsigned char; template <Mode, class T, class> __global__ void
        # en(const T* __restrict__, Mode, long long, size_t, short, wchar_t, char16_t), with T = int
        (
            "_Z2enIL4Mode0EivEvPKT0_S0_xmswDs",
            "en",
            ("int const*", "Mode", "long long", "unsigned long", "short", "wchar_t", "char16_t"),
            ("pointer", "enum_or_class", "int64", "uint64", "int16", "int32", "uint16"),
        ),
        # template <class... T> __global__ void pk(T...), with int, float, char*
        (
            "_Z2pkIJifPcEEvDpT_",
            "pk",
            ("int", "float", "char*"),
            ("int32", "float", "pointer"),
        ),
        # the same with no argument at all: a pack is no parameter
        ("_Z2pkIJEEvDpT_", "pk", (), ()),
        # dep(Box<T>::In<int>, Box<T>::E, T Box<T>::*, void (*)(T, int), T (*)[4]), with T = float
        (
            "_Z3depIfEvN3BoxIT_E2InIiEENS2_1EEMS2_S1_PFvS1_iEPA4_S1_",
            "dep",
            (
                "Box<float>::In<int>",
                "Box<float>::E",
                "float Box<float>::*",
                "void (*)(float, int)",
                "float (*) [4]",
            ),
            ("enum_or_class", "enum_or_class", "enum_or_class", "pointer", "pointer"),
        ),
        # template <class T> void f(T, T const&, const T), with T = c10::Half: const is no part of a parameter
        (
            "_Z1fIN3c104HalfEEvT_RKS2_S2_",
            "f",
            ("c10::Half", "c10::Half const&", "c10::Half"),
            ("half", "reference", "half"),
        ),
        # void f(at::TensorInfo<float, unsigned int>, c10::BFloat16, signed char, char, double)
        (
            "_Z1fN2at10TensorInfoIfjEEN3c108BFloat16Eacd",
            "f",
            ("at::TensorInfo<float, unsigned int>", "c10::BFloat16", "signed char", "char", "double"),
            ("enum_or_class", "bfloat16", "int8", "char", "double"),
        ),
        # template <class T> void f(T), with T = float* : the kind is that of the argument
        ("_Z1fIPfEvT_", "f", ("float*",), ("pointer",)),
        # the T of a member template is the member's, not the class's
        ("_ZN1AIiE1fIdEEvT_", "f", ("double",), ("double",)),
        # auto g(double)::[](short) {…}
        ("_ZZ1gdENKUlsE_clEs", "g::lambda", ("short",), ("int16",)),
        # a lambda inside that lambda
        ("_ZZZ1gdENKUlsE_clEsENKUljE0_clEj", "g::lambda", ("unsigned int",), ("uint32",)),
        # a generic lambda called with (char): its parameter is its own template's
        ("_ZZ1gvENKUlT_E_clIcEEDaS_", "g::lambda", ("char",), ("char",)),
        # struct Box { operator float() const; Box(long); ~Box(); };
        ("_ZNK3BoxcvfEv", "operator float", (), ()),
        ("_ZN3BoxC1El", "Box", ("long",), ("int64",)),
        ("_ZN3BoxD2Ev", "~Box", (), ()),
        # a T_ that a substitution carries out of an inner template means the outer one's argument
        (
            "_Z1gIZ1fIiEvT_EUlvE_EvS1_",
            "g",
            ("f<int>(int)::{lambda()#1}",),
            ("enum_or_class",),
        ),
    ],
)
def test_known_sources(symbol: str, short: str, parameters: tuple[str, ...], kinds: tuple[str, ...]) -> None:
    found = demangle(symbol)
    assert (found.short, found.parameters, found.kinds) == (short, parameters, kinds)


@pytest.mark.parametrize(
    ("symbol", "text"),
    [
        ("_Z1fPFvPFviEE", "f(void (*)(void (*)(int)))"),
        ("_Z1fPFPFivEvE", "f(int (*(*)())())"),
        ("_Z1fRA2_A3_Ki", "f(int const (&) [2][3])"),
        ("_Z1fM3FooKFviE", "f(void (Foo::*)(int) const)"),
        ("_Z1fIRiEvOT_", "void f<int&>(int&)"),
        ("_Z1fIOiEvRT_", "void f<int&&>(int&)"),
        ("_Z1fILb1ELin5ELj3ELl4ELm5ELx6ELs5EEvv", "void f<true, -5, 3u, 4l, 5ul, 6ll, (short)5>()"),
        ("_Z1fDv4_f", "f(float __vector(4))"),
        ("_ZNKR1A1fEv", "A::f() const &"),
        ("_ZN1A1fB5cxx11Ev", "A::f[abi:cxx11]()"),
        ("_Z1fi.part.0.constprop.1", "f(int) [clone .part.0] [clone .constprop.1]"),
        ("_ZN1AIiEcvT_IfEEv", "A<int>::operator float<float>()"),
        ("_ZZ1fiEd0_NKUlvE_clEv", "f(int)::{default arg#2}::{lambda()#1}::operator()() const"),
        ("_ZN1xUt0_1fEv", "x::{unnamed type#2}::f()"),
        ("_ZZ1fvENUlvE_C1EOS_", "f()::{lambda()#1}::{lambda()#1}({lambda()#1}&&)"),
        ("_Zli3_kmy", 'operator"" _km(unsigned long long)'),
        (
            "_ZNSsC1Ev",
            "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string()",
        ),
        ("_Z1fIXadL_ZN1a1gEvEEEvv", "void f<&a::g>()"),
        ("_Z1fIiEDTplfp_Li1EET_", "decltype ({parm#1}+(1)) f<int>(int)"),
        (
            "_Z1fIiEvNSt9enable_ifIXgtstT_Li4EET_E4typeE",
            "void f<int>(std::enable_if<((sizeof (int))>(4)), int>::type)",
        ),
        ("_Z1fIXsr1A1BE1CEvv", "void f<A::B, C>()"),
        ("_Z1fIXsr1A1BE1CEEvv", "void f<A::B::C>()"),
        ("_Z1fPDOLb1EEFvvE", "f(void (*)() noexcept(true))"),
    ],
)
def test_grammar_corners(symbol: str, text: str) -> None:
    assert demangle(symbol).text == text


@pytest.mark.parametrize(
    "symbol", ["add_kernel", "", "_Z", "_Z1", "_ZN1A", "main", "_Z1fS9_", "_Z1fT_", "_Zé"]
)
def test_what_is_not_mangled_is_its_own_name(symbol: str) -> None:
    assert demangle(symbol) == Demangled(symbol, symbol, None, ())


def test_data_has_no_parameters() -> None:
    assert demangle("_ZZ6kernelPfE4smem") == Demangled("kernel(float*)::smem", "smem", None)
    assert demangle("_ZTV1A").parameters is None


def test_names_that_cuda_wraps() -> None:
    static = demangle("__nv_static_29__27_tmpxft_00001_7_k_cpp1_ii_ab__Z6kernelPfi")
    assert (static.text, static.short) == ("kernel(float*, int)", "kernel")
    callee = demangle("$_Z9stack_ovfPi$_Z7recurseiPi")
    assert (callee.text, callee.kinds) == ("recurse(int, int*)", ("int32", "pointer"))
    for helper in ("$__internal_0_$__cuda_sm20_div_s64", "__internal_trig_reduction_slowpathd"):
        assert demangle(helper).text == helper


def test_control_characters_do_not_come_through() -> None:
    found = demangle("_Z6a\x1b[31mv")
    assert (found.text, found.short) == ("a?[31m()", "a?[31m")
    assert demangle("k\nforged line").text == "k?forged line"
    # Text that runs from right to left can show one name as another.
    assert demangle("_Z3a\u202ebv").short == "a?b"


def base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
        if number == 0:
            return digits


def doubling(levels: int) -> str:
    """pair<X, X> of pair<X, X> of …: 2^levels ints when written out."""
    name = "_Z1fSt4pairIiiE"
    for level in range(levels):
        name += f"S_IS{base36(level)}_S{base36(level)}_E"
    return name


BOMBS = {
    "doubling 30": doubling(30),
    "doubling 150": doubling(150),
    "doubling 1500": doubling(1500)[: 16 * 1024],
    "pointers": "_Z1f" + "P" * 16_000 + "i",
    "parameters": "_Z1f" + "i" * 16_000,
    "names": "_ZN" + "1a" * 8000 + "E",
    "local": "_Z" + "Z" * 16_000,
    "expressions": "_Z1fIX" + "pl" * 8000,
    "pack": "_Z1fIJ" + "i" * 3000 + "EEv" + "DpT_" * 3000,
    "pack of packs": "_Z1fIJ" + "i" * 300 + "EEvDpSt4pairIT_T_E" + "DpS1_IS3_S3_E" * 500,
    "parameter of itself": "_Z1fIT_EvT_",
    "digits": "_Z" + "9" * 16_000,
    "sequence": "_Z1fS" + "Z" * 16_000 + "_",
    "qualifiers": "_Z1f" + "KV" * 8000 + "i",
    "literal": "_Z1fILi" + "9" * 16_000 + "EEvv",
    "clones": "_Z1fv" + ".a" * 8000,
    "conversions": "_ZN1A" + "cvT_I" * 3000 + "i" + "E" * 1300,
    "guesses": "_Z1f" + "IXsr1A1BE1C" * 1400,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_cheap(name: str) -> None:
    symbol = BOMBS[name]
    tracemalloc.start()
    found = demangle(symbol)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.text) <= 16 * 1024
    assert len(found.short) <= 16 * 1024
    assert peak < 12e6
    assert best_of(3, symbol) < 0.05


def test_a_long_name_is_cut_where_it_is_still_exact() -> None:
    text = demangle(doubling(30)).text
    assert text.endswith("…")
    assert text.startswith("f(std::pair<int, int>, std::pair<std::pair<int, int>, std::pair<int, int> >, ")


def test_over_long_input_is_returned_as_it_is() -> None:
    symbol = "_Z1f" + "i" * (16 * 1024)
    assert demangle(symbol) == Demangled(symbol, symbol, None)


def test_a_typical_name_takes_under_a_millisecond() -> None:
    symbol = next(symbol for symbol, _ in SYMBOLS if symbol.startswith("_ZN2at") and 280 < len(symbol) < 340)
    assert best_of(20, symbol) < 0.001


def check(symbol: str) -> None:
    start = time.process_time()
    found = demangle(symbol)
    assert time.process_time() - start < 1
    assert found.text.isprintable()
    assert found.short.isprintable()
    assert len(found.text) <= max(len(symbol), 16 * 1024)
    assert (found.parameters is None) <= (found.kinds == ())
    assert len(found.parameters or ()) == len(found.kinds)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.sampled_from(["", "_Z", "_ZN", "_Z1fI", "_Z1fIX", "__nv_static_1__Z", "$_Z"]))
def test_any_text(tail: str, head: str) -> None:
    check(head + tail)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "N",
                "E",
                "I",
                "J",
                "X",
                "L",
                "T_",
                "T0_",
                "S_",
                "S0_",
                "St",
                "1a",
                "Dp",
                "F",
                "Z",
                "P",
                "K",
                "R",
                "O",
                "i",
                "v",
                "Ul",
                "E_",
                "cv",
                "cl",
                "sr",
                "DT",
                "fp_",
                "M",
                "A3_",
                "sZ",
                "C1",
                "clIiE",
                "pl",
                "Li0E",
            ]
        ),
        max_size=40,
    )
)
def test_any_sequence_of_grammar(parts: list[str]) -> None:
    check("_Z" + "".join(parts))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_symbols(data: st.DataObject) -> None:
    symbol = data.draw(st.sampled_from(SYMBOLS))[0]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(symbol)))
        width = data.draw(st.integers(0, 6))
        insert = data.draw(st.text("ESTJIXLZN_019PKRFDv", max_size=6))
        symbol = symbol[:at] + insert + symbol[at + width :]
    check(symbol)
