"""The HTML report: safe with names from strangers, pictures that show the numbers, readable in a real browser."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from pages import Page

from cuwhy import diagnose
from cuwhy.model.diagnosis import (
    Artefact,
    Cause,
    Confidence,
    Diagnosis,
    Finding,
    Fix,
    Listing,
    Next,
    Severity,
)
from cuwhy.model.facts import (
    Address,
    Argument,
    DriverAllocation,
    Fault,
    Launch,
    LaunchRecord,
    Machine,
    Origin,
    Target,
    TensorFact,
    Threads,
)
from cuwhy.model.place import Frame, Place
from cuwhy.report.html import render

ROOT = Path(__file__).parent.parent.parent
OOB = ROOT / "corpus/memory/global-out-of-bounds/bad_starter_oob"
EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e\x00</style></title>"


def hostile() -> Diagnosis:
    """Every string a stranger's."""
    frame = Frame(EVIL, f"/demo/{EVIL}.cu", 3)
    place = Place(EVIL, 16, 0x10, (frame, frame), EVIL, EVIL, EVIL)
    tensor = TensorFact(
        EVIL, frame, (4,), (1,), EVIL, 4, 0, 0x7F0000000000, 16, 16, "cuda:0", origin=Origin(EVIL, EVIL)
    )
    argument = Argument(0, 0, 8, EVIL, EVIL, 0x7F0000000000, "", True, Target(tensor))
    launch = Launch(
        EVIL, EVIL, EVIL, 1, 0, 1, (4, 1, 1), (64, 1, 1), arguments=(argument,), origin=Origin(EVIL)
    )
    threads = Threads(2, 1, 1, (0, 0, 0), (0, 0, 0), EVIL, 4, ((0, 0),), ((0, 3),), ((0, 1),))
    fault = Fault(
        launch,
        14,
        place,
        threads,
        address=Address(0x7F0000000100, "global", 4, base=0),
        origin=Origin(EVIL, EVIL),
    )
    record = LaunchRecord(1, EVIL, EVIL, frames=(frame,), grid=(4, 1, 1), block=(64, 1, 1))
    finding = Finding(
        Cause("memory/x", EVIL, Severity.CRASH), EVIL, (EVIL,), place, place, launch, EVIL, threads, frame, EVIL,
        ((EVIL, EVIL),), (Fix(EVIL, False, EVIL),), (fault,), confidence=Confidence(1, 0),
    )  # fmt: skip
    allocation = DriverAllocation(0x7F0000000000, 64, frames=(frame,), origin=Origin(EVIL))
    return Diagnosis(
        (finding,), (Machine(EVIL, EVIL, 1, EVIL, EVIL, Origin(EVIL)), launch, fault, allocation, tensor),
        (Artefact(EVIL, EVIL, 1, EVIL),), (Next(EVIL, EVIL, EVIL),), (EVIL,), (), (Listing(f"/demo/{EVIL}.cu", 1, (EVIL,) * 9),),
        (record,),
    )  # fmt: skip


def test_names_from_strangers_stay_text() -> None:
    page = Page.of(render(hostile()))
    assert page.text.count("<script>alert(1)</script>") > 20
    assert "\\x1b[31m" in page.text
    assert "\\u202e" in page.text


def test_policy_allows_the_one_style_and_nothing_else() -> None:
    document = render(diagnose(OOB / "evidence.cuwhy"))
    style = re.search(r"<style>(.*?)</style>", document, re.S)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert Page.of(document).policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"url\(|@import|https?:", style[1])


def test_pictures_show_the_numbers() -> None:
    document = render(diagnose(OOB / "evidence.cuwhy", sources=[OOB]))
    text = unescape(document)
    assert "64 of 64 blocks are concerned, 64 were on the chip" in text
    assert "32 of its 128 threads are concerned" in text
    assert "0x7fa650800000: `in` points here, its size is not known" in text
    assert "The lowest access is 200.0 MiB past where `in` points" in text
    source = re.search(r'<table class="source">.*?</table>', document, re.S)
    assert source is not None
    bad = re.findall(r'<tr class="bad">.*?</tr>', source[0])
    assert len(bad) == 1
    assert ">5<" in bad[0]
    assert "reinterpret_cast" in bad[0]


def test_nothing_found_is_said() -> None:
    page = Page.of(render(Diagnosis()))
    assert "nothing found" in page.text
    assert "These files show no failure." in page.text


# -- a real browser ----------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = importlib.util.find_spec("axe_core_python")
browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    return subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0",
         "--virtual-time-budget=4000", *arguments],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip


@browser
def test_chromium_shows_the_page_without_complaint(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(render(hostile()), "utf-8")
    picture = tmp_path / "page.png"
    log = tmp_path / "net.json"
    shown = chromium(
        f"--screenshot={picture}", "--window-size=1000,1600", f"--log-net-log={log}", page.as_uri()
    )
    assert "CONSOLE" not in shown.stderr, shown.stderr
    # A blank page of this size is below 10 KB.
    assert picture.stat().st_size > 60_000
    # The file itself is there, so the log is one.
    assert page.as_uri() in log.read_text("utf-8", "replace")
    asked = set(re.findall(r'"url":"((?:https?|data|ftp|ws)[^"]*)"', log.read_text("utf-8", "replace")))
    assert not [url for url in asked if url == "x" or "onerror" in url]


@browser
@pytest.mark.skipif(AXE is None, reason="needs axe-core-python")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(scheme: str, tmp_path: Path) -> None:
    assert AXE is not None
    assert AXE.origin is not None
    axe = Path(AXE.origin).with_name("axe.min.js").read_text("utf-8")
    document = render(diagnose(OOB / "evidence.cuwhy", sources=[OOB]))
    # The page's own policy lets no script run: this copy goes without it, so that axe can look at it.
    document = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", document)
    document = document.replace("<details>", "<details open>")
    run = (
        "axe.run(document).then(r => { document.body.innerHTML = '<pre id=axe></pre>';"
        "document.getElementById('axe').textContent = JSON.stringify({passes: r.passes.length, violations:"
        " r.violations.map(v => [v.id, v.impact, v.nodes.slice(0, 3).map(n => n.html)])}); });"
    )
    page = tmp_path / "page.html"
    page.write_text(
        document.replace("</body>", f"<script>{axe}</script><script>{run}</script></body>"), "utf-8"
    )
    options = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    dom = chromium(*options, "--dump-dom", page.as_uri()).stdout
    found = re.search(r'<pre id="axe">(.*?)</pre>', dom, re.S)
    assert found is not None, dom[-2000:]
    result = json.loads(unescape(found[1]))
    assert result["passes"] > 10
    assert result["violations"] == []


def test_start_is_light() -> None:
    """The page's parts are not loaded for terminal output."""
    code = (
        "import sys, cuwhy.cli.main as m; m.main(['diagnose', sys.argv[1]]); "
        "assert not [n for n in sys.modules if n.startswith('cuwhy.report.html')]"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(OOB / "evidence.cuwhy")], check=True, capture_output=True, timeout=60
    )
