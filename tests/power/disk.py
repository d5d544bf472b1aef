"""A file system in an image file whose power can be cut: made, mounted, shut down, mounted again.

The cut is the file system's own ioctl (`EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN`): from that moment
nothing reaches the image any more, and an unmount drops data that is in memory alone. It does not
simulate a disk that ignores a flush, nor a sector that is half written.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import shutil
import struct
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)

NO_LOG_FLUSH = 2
"""The cut that loses most: metadata that is not in the journal on the disk is gone too."""
LOG_FLUSH = 1
"""The journal is written before the cut, data that was not synced is not."""
FLUSH_ALL = 0
"""Everything is written before the cut."""


class Skipped(Exception):  # noqa: N818 (no error: the exit code is 0)
    """This machine, or this user, cannot cut the power of a file system."""


def until(condition: Callable[[], Any], what: str, timeout: float) -> Any:
    """Wait for a condition; its first true value is returned."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {timeout} s: {what}")
        time.sleep(0.005)


def run(*command: str | Path, timeout: float = 60.0) -> str:
    """Run a command and return its output; a failure shows its output."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(str(error)) from error
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def own_mounts() -> None:
    """Move this process into mounts of its own, which end with it, however it ends.

    No other process can then hold a file system that was unmounted here.
    """
    if LIBC.unshare(_CLONE_NEWNS) != 0:
        raise Skipped(f"no mounts of its own: {os.strerror(ctypes.get_errno())}")
    try:
        run("mount", "--make-rprivate", "/")
    except OSError as error:
        raise Skipped(f"mounting is not permitted: {error}") from error


def check_machine() -> None:
    """Raise `Skipped` unless this is root on a machine with loop devices."""
    if os.geteuid() != 0:
        raise Skipped("needs root, for a loop device and a mount: sudo make power")
    for tool in ("mount", "umount", "losetup", "setpriv"):
        if shutil.which(tool) is None:
            raise Skipped(f"{tool} is missing: apt-get install mount util-linux")
    try:
        run("losetup", "--find")
    except OSError as error:
        raise Skipped(f"no loop device: {error}") from error
    own_mounts()


class Disk:
    """One file system in one image file; its loop device ends with its mount."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.image = directory / f"{kind}.img"
        self.mounted = directory / f"{kind}.mounted"
        self.is_mounted = False

    def make(self) -> None:
        """Make a new, empty file system in place of the old one."""
        package, options = _MAKE[self.kind]
        if shutil.which(f"mkfs.{self.kind}") is None:
            raise Skipped(f"mkfs.{self.kind} is missing: apt-get install {package}")
        self.mounted.mkdir(exist_ok=True)
        self.image.unlink(missing_ok=True)
        with self.image.open("xb") as image:
            image.truncate(_IMAGE_BYTES)
        run(f"mkfs.{self.kind}", *options, self.image)

    def mount(self, options: str = "") -> None:
        """Mount it on a new loop device; after a cut this replays the journal."""
        wanted = ",".join(["loop", *filter(None, [options])])
        run("mount", "-t", self.kind, "-o", wanted, self.image, self.mounted)
        self.is_mounted = True

    def cut_power(self, flag: int) -> None:
        """Shut the file system down: nothing that happens afterwards reaches the image."""
        opened = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(opened, _SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(opened)

    def unmount(self) -> None:
        """Unmount it, and wait until its loop device has let go of the image."""
        until(self._try_unmount, f"{self.mounted} can be unmounted", 20)
        self.is_mounted = False
        until(lambda: not run("losetup", "--associated", self.image), "no loop device left", 20)

    def _try_unmount(self) -> bool:
        gc.collect()  # A spool that was read may still have files open.
        try:
            run("umount", self.mounted)
        except OSError as error:
            if "busy" in str(error):
                return False
            raise
        return True

    def fill(self, left: int) -> None:
        """Take all room but about `left` bytes by a file."""
        opened = os.open(self.filler, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for _ in range(20):
                stat = os.statvfs(self.mounted)
                free = stat.f_bfree * stat.f_frsize - left
                if free < _BLOCK_BYTES:
                    return
                try:
                    size = os.fstat(opened).st_size
                    os.posix_fallocate(opened, size, max(_BLOCK_BYTES, free * 9 // 10))
                except OSError:  # Room that the file system reserves for itself is in the way.
                    return
        finally:
            os.close(opened)

    @property
    def filler(self) -> Path:
        """The file that `fill` makes."""
        return self.mounted / "filler"

    def sync_some(self, path: Path) -> None:
        """Write a file's dirty pages, but not its metadata, as the kernel may at any time."""
        try:
            opened = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            LIBC.sync_file_range(opened, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_WRITE_WAIT)
        finally:
            os.close(opened)

    def sync_all(self) -> None:
        """Write everything, as the kernel may at any time."""
        opened = os.open(self.mounted, os.O_RDONLY)
        try:
            LIBC.syncfs(opened)
        finally:
            os.close(opened)


@contextmanager
def disk(kind: str, directory: Path) -> Iterator[Disk]:
    """Yield a disk that was tried once; nothing stays mounted in any case."""
    made = Disk(kind, directory)
    try:
        try:
            made.make()
            made.mount()
            made.cut_power(NO_LOG_FLUSH)
            made.unmount()
        except OSError as error:
            raise Skipped(str(error)) from error
        yield made
    finally:
        if made.is_mounted:
            # The loop device ends with the last file that is open there.
            subprocess.run(["umount", "--lazy", made.mounted], timeout=60, check=False)


_IMAGE_BYTES = 384 << 20
"""XFS takes at least 300 MiB, of which 64 MiB are its log."""
_BLOCK_BYTES = 4096
_MAKE = {
    # No blocks for root alone: the receiver is root here, and the disk is to be full for it too.
    "ext4": ("e2fsprogs", ("-q", "-F", "-m", "0")),
    "xfs": ("xfsprogs", ("-q", "-f")),
}
_SHUTDOWN = 0x8004_587D
"""`_IOR('X', 125, __u32)`: EXT4_IOC_SHUTDOWN, and XFS_IOC_GOINGDOWN with the same flags."""
_CLONE_NEWNS = 0x0002_0000
_SYNC_WRITE_WAIT = 7
"""SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER."""
