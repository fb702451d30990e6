"""The program's output on its way to the user, unchanged, and a capped copy of it.

A stream that goes to a file is left alone: the program writes the file itself, and the copy
is read from there.  A stream that goes to a pipe passes through a pipe of ours, one that goes
to a terminal through a pseudo-terminal, so that the program still sees a terminal.  Standard
input is never touched: the program has the user's own, with the terminal's line discipline
and job control.  The pseudo-terminal does no output processing, the real one does, so bytes
are not translated twice.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import termios
import threading
import time
from collections import deque
from dataclasses import dataclass, field

#: What is kept of a stream: this much of its beginning, and as much of its end.
KEPT_BYTES = 8 << 20
_CHUNK = 1 << 16
_PIPE_BYTES = 1 << 20
_JOIN = 1 << 16


class Copy:
    """The beginning and the end of a stream of any length, in bounded memory."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.total = 0
        self._limit = limit
        self._head = bytearray()
        self._tail: deque[bytearray] = deque()
        self._tail_bytes = 0

    def add(self, data: bytes) -> None:
        """Take the next piece."""
        self.total += len(data)
        room = self._limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        # A program that writes byte by byte must not cost an object for each.
        if self._tail and len(self._tail[-1]) < _JOIN:
            self._tail[-1] += data
        else:
            self._tail.append(bytearray(data))
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= self._limit:
            self._tail_bytes -= len(self._tail.popleft())

    def content(self) -> bytes:
        """Return what is kept, with a line where something was left out."""
        tail = b"".join(self._tail)[-self._limit :]
        left_out = self.total - len(self._head) - len(tail)
        return bytes(self._head) + (_gap(left_out) if left_out > 0 else b"") + tail


def _gap(count: int) -> bytes:
    return b"\n[cuwhy: %d bytes left out here]\n" % count


@dataclass
class Channel:
    """One way out of the program.

    Attributes:
        name: "stdout", "stderr", or "output" when both are the same file or terminal.
        target: our own descriptor, where it goes.
        child: the descriptor that the program gets.
        source: where we read, -1 when the program writes the file itself.
        terminal: True for a pseudo-terminal.
        start: offset in the file where the program begins to write.
    """

    name: str
    target: int
    child: int
    source: int = -1
    terminal: bool = False
    start: int = 0
    copy: Copy = field(default_factory=Copy)
    last: float = 0.0

    def written(self) -> int:
        """Bytes so far; for telling whether the program still writes."""
        if self.source >= 0:
            return self.copy.total
        with contextlib.suppress(OSError):
            return os.fstat(self.target).st_size
        return 0

    def content(self) -> bytes:
        """Return the kept copy, after the end."""
        if self.source >= 0:
            return self.copy.content()
        try:
            # Our own descriptor is most likely open for writing only.
            with open(f"/proc/self/fd/{self.target}", "rb") as file:
                size = os.fstat(file.fileno()).st_size
                start = min(self.start, size)
                file.seek(start)
                head = file.read(KEPT_BYTES)
                rest = max(start + len(head), size - KEPT_BYTES)
                file.seek(rest)
                tail = file.read(KEPT_BYTES)
        except OSError:
            return b""
        left_out = rest - start - len(head)
        return head + (_gap(left_out) if left_out > 0 else b"") + tail


class Streams:
    """Both output streams of one program: :meth:`started` once it runs, :meth:`drain` once it has ended."""

    def __init__(self) -> None:
        """Open pipes and pseudo-terminals as standard output and error need them.

        Raises:
            OSError: when none can be had.
        """
        _ensure_standard_descriptors()
        status = os.fstat(1), os.fstat(2)
        # The same file or terminal twice stays one, so that both keep their order.
        same = (status[0].st_dev, status[0].st_ino) == (status[1].st_dev, status[1].st_ino)
        names = (("output", 1),) if same else (("stdout", 1), ("stderr", 2))
        self.channels = [_channel(name, target) for name, target in names]
        self._wake, self._stop = os.pipe()
        self._pumps: list[threading.Thread] = []

    @property
    def stdout(self) -> int:
        """The descriptor for the program's standard output."""
        return self.channels[0].child

    @property
    def stderr(self) -> int:
        """The descriptor for the program's standard error."""
        return self.channels[-1].child

    def started(self) -> None:
        """Begin to pass bytes on; the program holds its ends now."""
        self._close_child_ends()
        for channel in self.channels:
            if channel.source >= 0:
                pump = threading.Thread(target=_pump, args=(channel, self._wake), daemon=True)
                self._pumps.append(pump)
                pump.start()

    def abandon(self) -> None:
        """Close everything: the program could not be started."""
        self._close_child_ends()
        for channel in self.channels:
            if channel.source >= 0:
                os.close(channel.source)

    def written(self) -> int:
        """Bytes of both streams so far."""
        return sum(channel.written() for channel in self.channels)

    def resize(self) -> None:
        """Give the pseudo-terminals the size of the real ones."""
        for channel in self.channels:
            if channel.terminal:
                _copy_size(channel.target, channel.source)

    def drain(self, seconds: float = 0.3) -> bool:
        """Pass on what is still on its way, after the program has ended.

        Returns:
            True when all is through; False when another process holds a stream open and
            nothing came for ``seconds``: then :meth:`linger` keeps passing on.
        """
        while any(pump.is_alive() for pump in self._pumps):
            before = self.written()
            for pump in self._pumps:
                pump.join(seconds)
            if self.written() == before:
                break
        if not any(pump.is_alive() for pump in self._pumps):
            return True
        os.write(self._stop, b"x")
        for pump in self._pumps:
            # A reader that does not read holds us where it would hold the program.
            pump.join()
        return False

    def linger(self) -> None:
        """Leave a process behind that passes on what background processes of the program still write.

        It ends with the last of them.  Without it their next line would kill them.
        """
        if os.fork() == 0:
            try:
                wake, _ = os.pipe()
                pumps = [
                    threading.Thread(target=_pump, args=(channel, wake))
                    for channel in self.channels
                    if channel.source >= 0
                ]
                for pump in pumps:
                    pump.start()
                for pump in pumps:
                    pump.join()
            finally:
                os._exit(0)

    def _close_child_ends(self) -> None:
        for channel in self.channels:
            if channel.child != channel.target:
                os.close(channel.child)


def _ensure_standard_descriptors() -> None:
    # With one of them closed, a pipe of ours would take its number.
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)


def _channel(name: str, target: int) -> Channel:
    mode = os.fstat(target).st_mode
    if stat.S_ISREG(mode):
        flags = fcntl.fcntl(target, fcntl.F_GETFL)
        where, whence = (0, os.SEEK_END) if flags & os.O_APPEND else (0, os.SEEK_CUR)
        return Channel(name, target, target, start=os.lseek(target, where, whence))
    if os.isatty(target):
        source, child = os.openpty()
        attributes = termios.tcgetattr(target)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(child, termios.TCSANOW, attributes)
        _copy_size(target, source)
        return Channel(name, target, child, source, terminal=True)
    source, child = os.pipe()
    with contextlib.suppress(OSError, AttributeError):
        # Linux: F_SETPIPE_SZ; a larger pipe means fewer turns for a program that writes much.
        fcntl.fcntl(source, getattr(fcntl, "F_SETPIPE_SZ", 1031), _PIPE_BYTES)
    return Channel(name, target, child, source)


def _copy_size(source: int, target: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


def _pump(channel: Channel, wake: int) -> None:
    """Pass one stream on until its end, until its reader is gone, or until ``wake`` has a byte."""
    waiter = select.poll()
    waiter.register(channel.source, select.POLLIN)
    waiter.register(wake, select.POLLIN)
    while True:
        ready = {number for number, _ in waiter.poll()}
        if channel.source not in ready:
            return
        try:
            data = os.read(channel.source, _CHUNK)
        except OSError:
            # EIO is how a pseudo-terminal says that nobody has its other end any more.
            return
        if not data:
            return
        channel.copy.add(data)
        channel.last = time.monotonic()
        if not write_all(channel.target, data):
            # Now the program meets the closed pipe that it would have met without us.
            os.close(channel.source)
            return


def write_all(target: int, data: bytes) -> bool:
    """Write everything, however slowly it is taken; False when nobody takes it any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except OSError as error:
            if error.errno != errno.EAGAIN:
                return False
            # Somebody else made the descriptor non-blocking; the program may not know that either.
            waiter = select.poll()
            waiter.register(target, select.POLLOUT)
            waiter.poll()
    return True
