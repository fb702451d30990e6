"""The catalogue is complete: every cause has its rule, its README and its cases, and the lists are current."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cuwhy.causes.catalogue import UNKNOWN, Entry, catalogue, find
from cuwhy.cli.main import main
from cuwhy.model.diagnosis import Cause, Diagnosis, Finding, Role, Severity
from cuwhy.model.errors import CuwhyError
from cuwhy.model.place import Frame, Place

ROOT = Path(__file__).resolve().parents[2]
CAUSES = ROOT / "src" / "cuwhy" / "causes"
CORPUS = ROOT / "corpus"

HEADINGS = (
    "What you see",
    "Why",
    "What proves it",
    "Fix",
    "When the fix is unsafe",
    "Look-alikes",
    "Sources",
)
WIDTH = 100
#: Causes whose repaired program has not been recorded yet.
UNTWINNED = {"launch/no-kernel-image"}
#: Causes of which no program has been recorded yet; their rules are tested on facts made by hand.
UNRECORDED = {"memory/use-after-free"}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"cuwhy_scripts_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up while they are built.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def sections(text: str) -> list[tuple[str, str]]:
    """Heading line and body of each part; a ``#`` in a code block starts none."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        if line.startswith("#") and not fenced:
            parts.append((line, []))
        else:
            parts[-1][1].append(line)
    return [(heading, "\n".join(body).strip()) for heading, body in parts]


def readme_problems(text: str, name: str) -> list[str]:
    parts = sections(text)
    problems = []
    wanted = ["", f"# {name}", *(f"## {heading}" for heading in HEADINGS)]
    if [heading for heading, _ in parts] != wanted:
        problems.append(f"headings are {[heading for heading, _ in parts[1:]]}")
    problems += [f"nothing under {heading!r}" for heading, body in parts[1:] if not body]
    problems += [f"TODO under {heading!r}" for heading, body in parts if "TODO" in heading + body]
    problems += [
        f"line {number} is {len(line)} wide"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > WIDTH
    ]
    if text.count("```") % 2:
        problems.append("a code block is not closed")
    return problems


def case_problems(corpus: Path, name: str) -> list[str]:
    folder = corpus / name
    problems = []
    for kind in ("bad_", "ok_"):
        truths = sorted(folder.glob(f"{kind}*/truth.toml"))
        if not truths:
            problems.append(f"{name} has no {kind} case")
        problems += [f"TODO in {truth.parent.name}" for truth in truths if "TODO" in truth.read_text("utf-8")]
    return problems


@pytest.fixture(params=catalogue(), ids=lambda entry: entry.cause.name)
def entry(request: pytest.FixtureRequest) -> Entry:
    found: Entry = request.param
    return found


# -- every cause ---------------------------------------------------------------


def test_the_catalogue_finds_every_rule() -> None:
    assert len(catalogue()) == len(list(CAUSES.glob("*/*/rule.py"))) >= 17
    assert len({entry.cause.name for entry in catalogue()}) == len(catalogue())


def test_the_folder_is_named_after_the_cause(entry: Entry) -> None:
    group, fault = entry.cause.name.split("/")
    assert entry.readme.parent == CAUSES / group.replace("-", "_") / fault.replace("-", "_")


def test_the_readme_is_complete(entry: Entry) -> None:
    assert readme_problems(entry.text, entry.cause.name) == []


def test_the_readme_opens_with_one_sentence(entry: Entry) -> None:
    summary = sections(entry.text)[1][1]
    assert "\n\n" not in summary
    assert summary.endswith(".")
    assert ". " not in summary.replace("\n", " ")


def test_the_readme_names_only_causes_that_exist(entry: Entry) -> None:
    names = {other.cause.name for other in catalogue()}
    groups = {name.partition("/")[0] for name in names}
    quoted = [
        part for part in entry.text.split("`")[1::2] if part.partition("/")[0] in groups and "/" in part
    ]
    assert [name for name in quoted if name not in names] == []


def test_the_readme_names_no_place_of_a_workshop(entry: Entry) -> None:
    assert not [path for path in ("/tmp/", "/demo/", "/root/", "/home/") if path in entry.text]


def test_every_cause_has_a_bad_and_an_ok_case(entry: Entry) -> None:
    if entry.cause.name.startswith(UNKNOWN) or entry.cause.name in UNRECORDED:
        assert not (CORPUS / entry.cause.name).exists()
    else:
        missing = [f"{entry.cause.name} has no ok_ case"] if entry.cause.name in UNTWINNED else []
        assert case_problems(CORPUS, entry.cause.name) == missing


def test_every_case_is_about_a_cause_of_the_catalogue() -> None:
    names = {entry.cause.name for entry in catalogue()}
    strays = [
        case
        for case in CORPUS.glob("*/*/*/truth.toml")
        if str(case.parts[-4] + "/" + case.parts[-3]) not in names
    ]
    assert strays == []


# -- finding one ---------------------------------------------------------------


def test_a_cause_is_found_by_its_full_and_its_short_name(entry: Entry) -> None:
    short = entry.cause.name.partition("/")[2]
    assert find(entry.cause.name) is entry
    assert find(short) is entry
    assert find(f"  {short.upper().replace('-', '_')} ") is entry


def test_explain_prints_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "null-pointer"]) == 0
    assert capsys.readouterr().out.startswith("# memory/null-pointer\n")


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("memory/nul-pointer", "memory/null-pointer"),
        ("endles-spin", "endless-spin"),
        ("synchronisation/divergent-barrier", "synchronization/divergent-barrier"),
    ],
)
def test_a_typo_gets_the_nearest_names(typo: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CuwhyError) as caught:
        find(typo)
    assert meant in caught.value.hint
    assert main(["explain", typo]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert meant in streams.err


@pytest.mark.parametrize("nonsense", ["", "qqqqqqqq", "x" * 100_000])
def test_what_is_near_nothing_is_refused_in_one_short_line(nonsense: str) -> None:
    with pytest.raises(CuwhyError) as caught:
        find(nonsense)
    assert "cuwhy causes" in str(caught.value)
    assert len(str(caught.value)) < 250


# -- generated files -----------------------------------------------------------


def test_the_catalogue_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert script("catalogue").main(["--check"]) == 0, capsys.readouterr().err


def test_the_catalogue_page_notices_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = script("catalogue")
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "catalogue.md")
    assert page.main(["--check"]) == 1
    assert page.main([]) == 0
    assert page.main(["--check"]) == 0
    page.PAGE.write_text(page.PAGE.read_text("utf-8") + "\n", "utf-8")
    assert page.main(["--check"]) == 1


def test_the_catalogue_page_links_and_demotes() -> None:
    page = script("catalogue")
    assert page.anchor("memory/null-pointer") == "memorynull-pointer"
    assert (
        page.demoted("# a\n\n```sh\n# no heading\n```\n\n## b\n")
        == "## a\n\n```sh\n# no heading\n```\n\n### b\n"
    )
    text = page.page()
    for one in catalogue():
        assert f"(#{page.anchor(one.cause.name)})" in text
        assert text.count(f"\n## {one.cause.name}\n") == 1


@pytest.mark.slow
def test_the_confidence_table_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    calibrate = script("calibrate")
    bare = [case.name for case in calibrate.cases(CORPUS) if not (case / calibrate.EVIDENCE).is_file()]
    if bare:
        pytest.skip(f"{len(bare)} cases are not recorded yet, first {bare[0]}")
    assert calibrate.main(["--check"]) == 0, "".join(capsys.readouterr())


# -- judging a case --------------------------------------------------------------

TRUTH = {"cause": "memory/null-pointer", "file": "add.cu", "line": 12, "call_line": 20, "wrong_line": 31}


def diagnosis(*findings: tuple[str, int, Role], host: Frame | None = None) -> Diagnosis:
    return Diagnosis(
        tuple(
            Finding(
                Cause(name, "", Severity.CRASH),
                "",
                place=Place(
                    "k", frames=(Frame("helper", "/usr/include/lib.h", 12), Frame("k", "/src/add.cu", line))
                ),
                host=host,
                role=role,
            )
            for name, line, role in findings
        )
    )


@pytest.mark.parametrize(
    ("found", "right", "hit", "misses"),
    [
        ([("memory/null-pointer", 12, Role.PRIMARY)], True, "memory/null-pointer", ()),
        ([("memory/null-pointer", 20, Role.PRIMARY)], True, "memory/null-pointer", ()),
        # The line to change is no line of a fault in a kernel.
        ([("memory/null-pointer", 31, Role.PRIMARY)], False, "", ("memory/null-pointer",)),
        ([], False, "", ("memory/null-pointer",)),
        ([("memory/null-pointer", 12, Role.LATENT)], False, "", ("memory/null-pointer",)),
        (
            [("execution/trap", 12, Role.PRIMARY), ("memory/null-pointer", 12, Role.PRIMARY)],
            False,
            "",
            ("execution/trap", "memory/null-pointer"),
        ),
        # A latent finding in front decides nothing.
        (
            [("execution/trap", 1, Role.LATENT), ("memory/null-pointer", 12, Role.PRIMARY)],
            True,
            "memory/null-pointer",
            (),
        ),
        ([("unknown/unexplained", 12, Role.PRIMARY)], False, "", ("memory/null-pointer",)),
    ],
)
def test_a_bad_case_is_judged_by_its_first_primary_finding(
    found: list[tuple[str, int, Role]], right: bool, hit: str, misses: tuple[str, ...]
) -> None:
    verdict = script("calibrate").judge(TRUTH, diagnosis(*found))
    assert (verdict.right, verdict.hit, verdict.misses) == (right, hit, misses)


def test_an_ok_case_must_stay_silent() -> None:
    judge = script("calibrate").judge
    assert judge({"cause": ""}, diagnosis()).right
    alarm = judge({"cause": ""}, diagnosis(("execution/trap", 1, Role.PRIMARY)))
    assert (alarm.right, alarm.hit, alarm.misses) == (False, "", ("execution/trap",))
    # The rule of last resort claims nothing, so nothing is held against it; the case still fails.
    unknown = judge({"cause": ""}, diagnosis(("unknown/unexplained", 1, Role.PRIMARY)))
    assert (unknown.right, unknown.misses) == (False, ())
    assert judge({"cause": ""}, diagnosis(("execution/trap", 1, Role.LATENT))).right


def test_the_line_counts_only_in_the_right_file() -> None:
    judge = script("calibrate").judge
    found = diagnosis(("memory/null-pointer", 12, Role.PRIMARY))
    assert not judge({**TRUTH, "file": "other.cu"}, found).right
    assert judge({"cause": "memory/null-pointer"}, found).right
    assert judge({**TRUTH, "line": 1, "lines": [99, 12]}, found).right


def test_a_host_cause_may_name_the_line_to_change() -> None:
    judge = script("calibrate").judge
    name = "memory/host-index-out-of-range"
    found = diagnosis((name, 1, Role.PRIMARY), host=Frame("main", "/src/train.py", 21))
    truth = {"cause": name, "file": "train.py", "line": 13, "wrong_line": 21}
    assert judge(truth, found).hit == name
    assert judge({**truth, "wrong_line": 22}, found).misses == (name,)


def test_the_table_is_counted_sorted_and_ends_with_a_newline(tmp_path: Path) -> None:
    calibrate = script("calibrate")
    found = diagnosis(("memory/null-pointer", 12, Role.PRIMARY))
    verdicts = [
        calibrate.judge(TRUTH, found),
        calibrate.judge(TRUTH, found),
        calibrate.judge({"cause": ""}, found),
    ]
    text = calibrate.count(verdicts)
    assert text.endswith("}\n")
    assert json.loads(text) == {"version": 1, "causes": {"memory/null-pointer": {"hits": 2, "misses": 1}}}
    assert calibrate.main(["--corpus", str(tmp_path), "--table", str(tmp_path / "t.json")]) == 2
    assert not (tmp_path / "t.json").exists()


def test_an_unreadable_case_is_a_miss_and_never_clean(tmp_path: Path) -> None:
    for name, truth in (("bad_x", 'cause = "execution/trap"\n'), ("ok_x", 'cause = ""\n')):
        case = tmp_path / "execution" / "trap" / name
        case.mkdir(parents=True)
        (case / "truth.toml").write_text(truth, "utf-8")
        (case / "evidence.cuwhy").write_bytes(b"PK\x03\x04 cut short")
    table = tmp_path / "table.json"
    calibrate = script("calibrate")
    assert calibrate.main(["--corpus", str(tmp_path), "--table", str(table)]) == 0
    assert json.loads(table.read_text("utf-8"))["causes"] == {"execution/trap": {"hits": 0, "misses": 1}}
    assert not any(calibrate.examine(case).right for case in calibrate.cases(tmp_path))
    assert calibrate.main(["--check", "--corpus", str(tmp_path), "--table", str(table)]) == 0
    table.write_text("{}\n", "utf-8")
    assert calibrate.main(["--check", "--corpus", str(tmp_path), "--table", str(table)]) == 1
    assert table.read_text("utf-8") == "{}\n"


# -- starting a new one -----------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the script touches, so that it makes its files there."""
    shutil.copytree(
        CAUSES, tmp_path / "src" / "cuwhy" / "causes", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "new_cause.py", tmp_path / "scripts")
    return tmp_path


def new_cause(tree: Path, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / "scripts" / "new_cause.py"), name]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def listing(tree: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["memory/some-new-fault", "memory/double-free", "access-pattern/bank-conflict"]
)
def test_a_new_cause_is_complete_but_for_its_todos(tree: Path, name: str) -> None:
    before = listing(tree)
    result = new_cause(tree, name)
    assert result.returncode == 0, result.stderr
    assert "calibrate.py" in result.stdout
    after = listing(tree)
    assert {path: after[path] for path in before} == before

    group, fault = name.split("/")
    package = tree / "src" / "cuwhy" / "causes" / group.replace("-", "_")
    folder = package / fault.replace("-", "_")
    assert (package / "__init__.py").is_file()
    assert (folder / "__init__.py").is_file()
    text = (folder / "README.md").read_text("utf-8")
    # Complete in form, so that filling in is all that is left: every single part is flagged, and only for its TODO.
    wanted = [f"TODO under {heading!r}" for heading in (f"# {name}", *(f"## {h}" for h in HEADINGS))]
    assert readme_problems(text, name) == wanted
    assert case_problems(tree / "corpus", name) == ["TODO in bad_example", "TODO in ok_example"]


def test_a_new_rule_can_be_loaded_and_matches_nothing(tree: Path) -> None:
    assert new_cause(tree, "memory/some-new-fault").returncode == 0
    code = (
        "import sys, cuwhy.causes; cuwhy.causes.__path__.insert(0, sys.argv[1])\n"
        "import cuwhy.causes.memory; cuwhy.causes.memory.__path__.insert(0, sys.argv[1] + '/memory')\n"
        "from cuwhy.causes.memory.some_new_fault.rule import CAUSE, match\n"
        "from cuwhy.causes.evidence import Evidence\n"
        "print(CAUSE.name, list(match(Evidence())))"
    )
    causes = str(tree / "src" / "cuwhy" / "causes")
    result = subprocess.run(
        [sys.executable, "-c", code, causes], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stdout == "memory/some-new-fault []\n", result.stderr


def test_new_truths_are_toml(tree: Path) -> None:
    assert new_cause(tree, "memory/some-new-fault").returncode == 0
    load = script("calibrate").load_truth
    folder = tree / "corpus" / "memory" / "some-new-fault"
    assert load(folder / "bad_example")["cause"] == "memory/some-new-fault"
    assert load(folder / "ok_example")["cause"] == ""


@pytest.mark.parametrize(
    "name",
    [
        "some-new-fault",
        "memory/",
        "/some-new-fault",
        "memory/Some-Fault",
        "memory/some_fault",
        "memory/some fault",
        "memory/some-fault/x",
        "memory/../../etc",
        "memory/-fault",
        "memory/fault-",
        "memory/fault\n",
        "memory/" + "x" * 100,
        "unknown/some-fault",
        "speed/some-fault",
        "memory/use-wider-index",
        "memory/add-bounds-check",
        "memory/avoid-overflow",
        "memory/missing-check-of-index",
        "memory/null-pointer",
        "synchronization/endless-spin",
    ],
)
def test_a_bad_or_taken_name_is_refused_and_writes_nothing(tree: Path, name: str) -> None:
    before = listing(tree)
    result = new_cause(tree, name)
    assert result.returncode == 2
    assert result.stderr.startswith("new_cause: ")
    assert len(result.stderr.splitlines()) == 1
    assert listing(tree) == before


def test_a_half_made_cause_is_not_overwritten(tree: Path) -> None:
    truth = tree / "corpus" / "memory" / "some-new-fault" / "ok_example" / "truth.toml"
    truth.parent.mkdir(parents=True)
    truth.write_text("mine", "utf-8")
    assert new_cause(tree, "memory/some-new-fault").returncode == 2
    assert truth.read_text("utf-8") == "mine"
