"""The program's streams: unchanged, in order, with a terminal where there was one; and the capped copy."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from cuwhy.capture.passthrough import Copy
from cuwhy.case import open_case

from .conftest import Place

# -- the copy ----------------------------------------------------------------------


def test_a_short_stream_is_kept_whole() -> None:
    copy = Copy(10)
    for piece in (b"abc", b"", b"defghij", b"klmnopqrst"):
        copy.add(piece)
    assert copy.content() == b"abcdefghijklmnopqrst"


@pytest.mark.parametrize("step", [1, 7, 1000, 65536])
def test_of_a_long_stream_beginning_and_end_are_kept(step: int) -> None:
    text = b"".join(b"%07d\n" % i for i in range(60_000))
    copy = Copy(100_000)
    for at in range(0, len(text), step):
        copy.add(text[at : at + step])
    assert copy.content() == (text[:100_000] + b"\n[cuwhy: 280000 bytes left out here]\n" + text[-100_000:])


# -- pipes ---------------------------------------------------------------------------


def test_bytes_pass_unchanged_on_each_stream(place: Place) -> None:
    code = (
        "import os, sys\n"
        "for i in range(300):\n"
        "    os.write(1, bytes(range(256)) + b'%d' % i)\n"
        "    os.write(2, b'\\xff\\x00e%d\\r\\n' % i)\n"
    )
    process = place.start("run", *place.python(code))
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out == b"".join(bytes(range(256)) + b"%d" % i for i in range(300))
    assert err == b"".join(b"\xff\x00e%d\r\n" % i for i in range(300))
    assert place.left() == []


def test_output_is_not_held_back(place: Place) -> None:
    process = place.start("run", "--", "sh", "-c", "printf now; read line; echo $line", stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    # The program waits for us: nothing would come if it were buffered until the end.
    assert os.read(process.stdout.fileno(), 100) == b"now"
    process.stdin.write(b"heard\n")
    process.stdin.close()
    assert process.stdout.read() == b"heard\n"
    assert process.wait(10) == 0
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()


def test_standard_input_is_the_users(place: Place) -> None:
    data = bytes(range(256)) * 500
    ended = place.run("--", "cat", send=data)
    assert ended.out == data


def test_both_streams_into_one_pipe_keep_their_order(place: Place) -> None:
    code = "import os\nfor i in range(500):\n    os.write(1 + i % 2, b'%d,' % i)"
    ended = place.run(*place.python(code), stderr=subprocess.STDOUT)
    assert ended.out == b"".join(b"%d," % i for i in range(500))


def test_a_file_is_written_by_the_program_itself(place: Place) -> None:
    target = place.folder / "out.bin"
    with target.open("wb") as file:
        file.write(b"before,")
        file.flush()
        # A pipe could not do this.
        code = "import os; os.write(1, b'abcdef'); os.lseek(1, -3, 1); os.write(1, b'X')"
        ended = place.run("--case", "c.cuwhy", *place.python(code), stdout=file)
    assert ended.code == 0
    assert target.read_bytes() == b"before,abcXef"
    with open_case(place.folder / "work" / "c.cuwhy") as case:
        assert case.read("stdout.log") == b"abcXef"


def test_a_reader_that_leaves_ends_the_program_as_without_us(place: Place) -> None:
    process = place.start("run", "--", "yes")
    assert process.stdout is not None
    assert process.stdout.read(2) == b"y\n"
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
    assert process.wait(10) == -signal.SIGPIPE


def test_a_background_process_keeps_its_output(place: Place) -> None:
    ended = place.run("--", "sh", "-c", "echo first; (sleep 1; echo second; echo third) & exit 4")
    # communicate() ends when the last writer does, as it would without us.
    assert (ended.code, ended.out) == (4, b"first\nsecond\nthird\n")


def test_much_output_goes_through_quickly_in_little_memory(place: Place) -> None:
    code = "import os\nblock = b'0123456789abcde\\n' * 4096\nfor _ in range(3200): os.write(1, block)"
    begin = time.monotonic()
    process = place.start("run", "--case", "big.cuwhy", *place.python(code))
    assert process.stdout is not None
    total = peak = 0
    while data := process.stdout.read1(1 << 20):  # type: ignore[attr-defined]
        total += len(data)
        # Not ru_maxrss: that of pytest itself, in whose copy the process began, is in it.
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *(int(kb) for kb in re.findall(r"VmHWM:\s+(\d+) kB", status)), 0)
    process.wait(30)
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
    assert total == 3200 * 65536
    assert 0 < peak < 150_000, "kB"
    assert time.monotonic() - begin < 20
    with open_case(place.folder / "work" / "big.cuwhy") as case:
        log = case.read("stdout.log")
    assert len(log) == 2 * (8 << 20) + len(b"\n[cuwhy: 192937984 bytes left out here]\n")
    assert log.endswith(b"0123456789abcde\n")


def test_a_full_disk_under_the_output_is_the_programs_to_notice(place: Place) -> None:
    target = place.folder / "small"
    code = (
        "import os, sys\n"
        "try:\n    [os.write(1, b'x' * 100) for _ in range(100)]\n"
        "except OSError as error: sys.exit(error.errno)"
    )
    limited = (
        "import resource, os, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "os.execv(sys.executable, [sys.executable, '-m', 'cuwhy', 'run', *sys.argv[1:]])"
    )
    with target.open("wb") as file:
        ended = subprocess.run(
            [sys.executable, "-c", limited, *place.python(code)],
            stdout=file, stderr=subprocess.DEVNULL, env=place.environment, cwd=place.folder / "work", timeout=20,
            check=False,
        )  # fmt: skip
    assert ended.returncode == 27, "EFBIG, as the program saw it"
    assert target.stat().st_size == 4096


# -- a terminal ------------------------------------------------------------------------


class Terminal:
    """A terminal with a shell's part played by the test: cuwhy is its foreground job."""

    def __init__(self, place: Place, *arguments: str, stdout: int | None = None) -> None:
        self.text = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
                if stdout is not None:
                    os.dup2(stdout, 1)
                os.chdir(place.folder / "work")
                command = [sys.executable, "-m", "cuwhy", "run", *arguments]
                os.execve(sys.executable, command, place.environment)
            finally:
                os._exit(99)

    def until(self, text: bytes, seconds: float = 10) -> None:
        end = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < end, self.text
            self._read(0.1)

    def send(self, data: bytes) -> None:
        os.write(self.fd, data)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self, seconds: float = 15) -> int:
        """Read to the end; the exit code, negative for a signal."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._read(0.05)
            if pid:
                while self._read(0.05):
                    pass
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(self.text)

    def _read(self, seconds: float) -> bool:
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):
            data = os.read(self.fd, 65536)
            self.text += data
            return bool(data)
        return False


def test_the_program_sees_a_terminal_of_the_right_size(place: Place) -> None:
    code = "import os, sys; print([os.isatty(i) for i in range(3)], *os.get_terminal_size(1)); print('two')"
    terminal = Terminal(place, *place.python(code))
    assert terminal.end() == 0
    # One carriage return for each line: the real terminal adds it, and it alone.
    assert terminal.text == b"[True, True, True] 90 30\r\ntwo\r\n"


def test_a_pipe_beside_a_terminal_stays_a_pipe(place: Place) -> None:
    read, write = os.pipe()
    code = "import os; print([os.isatty(i) for i in range(3)]); os.write(2, b'seen\\n')"
    terminal = Terminal(place, *place.python(code), stdout=write)
    os.close(write)
    assert terminal.end() == 0
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"[True, False, True]\n"
    assert terminal.text == b"seen\r\n"


def test_what_is_typed_reaches_the_program(place: Place) -> None:
    terminal = Terminal(place, *place.python("print('got', input('name? '))"))
    terminal.until(b"name? ")
    terminal.send(b"ada\n")
    assert terminal.end() == 0
    assert terminal.text.endswith(b"got ada\r\n")


def test_a_new_size_reaches_the_program(place: Place) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGWINCH, lambda *_: print('size', *os.get_terminal_size(1), flush=True))\n"
        "print('ready', flush=True)\n"
        "input()\n"
    )
    terminal = Terminal(place, *place.python(code))
    terminal.until(b"ready")
    terminal.resize(50, 133)
    terminal.until(b"size 133 50")
    terminal.send(b"\n")
    assert terminal.end() == 0


def test_ctrl_c_reaches_the_program_once(place: Place) -> None:
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('interrupt', flush=True))\n"
        "print('ready', flush=True)\n"
        "input()\n"
    )
    terminal = Terminal(place, *place.python(code))
    terminal.until(b"ready")
    terminal.send(b"\x03")
    terminal.until(b"interrupt")
    terminal.send(b"\n")
    assert terminal.end() == 0
    assert terminal.text.count(b"interrupt") == 1


def test_ctrl_c_ends_a_program_that_does_not_care(place: Place) -> None:
    terminal = Terminal(place, "--", "sh", "-c", "echo ready; sleep 30")
    terminal.until(b"ready")
    terminal.send(b"\x03")
    assert terminal.end() == -signal.SIGINT


def test_ctrl_c_twice_takes_a_dump_of_a_program_that_does_not_end(place: Place) -> None:
    shell = "trap '' INT; " + " ".join(f"'{part}'" for part in place.fake("spin", "hang")[1:])
    terminal = Terminal(place, "--", "sh", "-c", shell)
    terminal.until(b"launched")
    terminal.send(b"\x03")
    time.sleep(0.3)
    terminal.send(b"\x03")
    assert terminal.end() == 124
    assert b"synchronization/endless-spin" in terminal.text
    assert b"Ctrl-C twice" in terminal.text


def test_nothing_is_open_that_the_program_should_not_have(place: Place) -> None:
    ended = place.run("--", "sh", "-c", "ls /proc/$$/fd")
    assert ended.out.split() == [b"0", b"1", b"2"]


def test_a_descriptor_of_the_users_reaches_the_program(place: Place, tmp_path: Path) -> None:
    (tmp_path / "extra").write_text("from descriptor")
    with (tmp_path / "extra").open("rb") as file:
        os.set_inheritable(file.fileno(), True)
        code = f"import os; os.write(1, os.read({file.fileno()}, 100))"
        ended = place.run(*place.python(code), close_fds=False)
    assert ended.out == b"from descriptor"
