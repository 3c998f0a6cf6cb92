"""Packed environments unpacked safely, once for each content, into the user's cache.

An archive is somebody else's: no member may land, link or look outside the folder it is unpacked
into, and none may be a device. Several processes may want the same one at once; whoever comes first
unpacks it aside and moves it into place whole, so that what lies there is always complete. What an
environment is for is `environments`' business.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from devkit.errors import LoadError

Say = Callable[[str], None]

_CHUNK = 1 << 20
_EVERY_SECONDS = 5.0
_digests: dict[tuple[str, int, int, int], str] = {}
_NO_LINKS_OUT = (
    "pack the environment with conda-pack, which makes links relative; a venv's archive holds only "
    "a link to its Python, so name the venv's folder instead, or make it with `venv --copies`"
)


class UnsafeArchive(LoadError):
    """A member of the archive reaches out of the folder it is unpacked into. Pack it again."""


def folder() -> Path:
    """Where unpacked environments are kept: `$DEVKIT_CACHE/environments`, else in `~/.cache`."""
    base = os.environ.get("DEVKIT_CACHE")
    home = Path(base) if base else Path.home() / ".cache" / "devkit"
    return home.expanduser() / "environments"


def unpacked(archive: Path, say: Say, cache: Path | None = None) -> Path:
    """The folder that holds what `archive` holds, unpacked now if it was not before.

    `say` hears of progress. Raises LoadError where it cannot be read or must not be unpacked.
    """
    cache = cache or folder()
    try:
        target = cache / digest(archive)
        if target.is_dir():
            return target
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(cache / f"{target.name}.lock"):
            if not target.is_dir():
                _unpack_aside(archive, target, say)
    except OSError as problem:
        raise _failed(archive, problem) from problem
    return target


def digest(archive: Path) -> str:
    """What the archive is known by: a hash of its bytes, not of its name or age."""
    status = archive.stat()
    key = (str(archive), status.st_ino, status.st_size, status.st_mtime_ns)
    found = _digests.get(key)
    if found is None:
        hashed = hashlib.sha256()
        with archive.open("rb") as source:
            while chunk := source.read(_CHUNK):
                hashed.update(chunk)
        found = _digests[key] = hashed.hexdigest()[:32]
    return found


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock between processes; the file stays, for removing it would be a race."""
    with open(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _unpack_aside(archive: Path, target: Path, say: Say) -> None:
    """Unpack beside `target` and move it there. Only with the lock held."""
    if not tarfile.is_tarfile(archive):
        raise LoadError(
            "Internal: archive_read_open_filename() failed.",
            remedy=f"{archive} is no tar archive; pack the environment with conda-pack",
        )
    for left in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(left, ignore_errors=True)  # of a process that died in the middle
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        began = time.monotonic()
        size = archive.stat().st_size
        say(f"unpacking execution environment {archive} ({size / 1e6:.0f} MB)")
        with archive.open("rb") as source:
            extract(source, aside, _Progress(source, size, say))
        aside.chmod(0o755)
        aside.rename(target)
        say(f"unpacked {archive} into {target} in {time.monotonic() - began:.1f} s")
    except (tarfile.TarError, EOFError, zlib.error) as problem:
        raise _failed(archive, problem) from problem
    except UnsafeArchive as problem:
        problem.message = f"Internal: {archive} is not unpacked: {problem.message}"
        problem.args = (problem.message,)
        raise
    finally:
        if aside.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _failed(archive: Path, problem: Exception) -> LoadError:
    remedy = "pack it again, or name the unpacked folder"
    if isinstance(problem, OSError) and problem.errno == errno.ENOSPC:
        remedy = f"free some space, or name a folder with more of it in DEVKIT_CACHE ({folder()})"
    text = str(problem) or type(problem).__name__
    return LoadError(f"Internal: {archive} cannot be unpacked: {text}", remedy=remedy)


class _Progress:
    """Says from time to time how far an archive has been read."""

    def __init__(self, source: IO[bytes], size: int, say: Say) -> None:
        self._source = source
        self._size = max(size, 1)
        self._say = say
        self._next = time.monotonic() + _EVERY_SECONDS

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY_SECONDS
            done = 100 * self._source.tell() // self._size
            self._say(f"unpacking {self._source.name}: {done} %")


def extract(source: IO[bytes], root: Path, progress: Callable[[], None] = lambda: None) -> None:
    """Unpack a tar archive (of any compression Python knows) into the empty folder `root`.

    Raises UnsafeArchive at the first member that reaches out of it.
    """
    unpacker = _Unpacker(root)
    with tarfile.open(fileobj=source, mode="r|*") as archive:
        for member in archive:
            unpacker.place(archive, member)
            progress()
    unpacker.check_links()


class _Unpacker:
    """Places members one by one; nothing is ever written through a link."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: set[Path] = {root}  # plain folders, which nothing may replace
        self._links: list[Path] = []

    def place(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Make the folder, file or link that `member` is."""
        path = self._inside(member.name, member.name)
        if path == self._root:
            return
        self._make_folder(path.parent, member.name)
        if member.isdir():
            self._make_folder(path, member.name)
            path.chmod((member.mode & 0o755) | 0o700)
        elif member.issym():
            self._link(path, member)
        elif member.islnk():
            self._hard_link(path, member)
        elif member.isreg():
            self._file(archive, path, member)
        else:
            raise UnsafeArchive(f"{member.name} is a device or a pipe", remedy="pack it without")

    def _inside(self, name: str, member: str) -> Path:
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or "\0" in name:
            raise UnsafeArchive(
                f"{member} would land outside the environment's folder",
                remedy="pack the environment with paths relative to its own folder",
            )
        return self._root.joinpath(*pure.parts)

    def _make_folder(self, path: Path, member: str) -> None:
        if path in self._folders:
            return
        self._make_folder(path.parent, member)
        try:
            path.mkdir(0o755)
        except FileExistsError:
            if not stat.S_ISDIR(path.lstat().st_mode):
                raise UnsafeArchive(
                    f"{member} would be written through the link or file {path.name}",
                    remedy=_NO_LINKS_OUT,
                ) from None
        self._folders.add(path)

    def _clear(self, path: Path, member: str) -> None:
        """A later member replaces an earlier one of its name, but never a folder."""
        if path in self._folders:
            raise UnsafeArchive(f"{member} would replace a folder", remedy="pack it again")
        with contextlib.suppress(FileNotFoundError):
            path.unlink()

    def _file(self, archive: tarfile.TarFile, path: Path, member: tarfile.TarInfo) -> None:
        self._clear(path, member.name)
        content = archive.extractfile(member)
        assert content is not None  # of a regular file there is always some
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as target:
            shutil.copyfileobj(content, target, _CHUNK)
            os.fchmod(target.fileno(), (member.mode & 0o755) | 0o600)
        os.utime(path, (member.mtime, member.mtime))  # byte code is good for one time of its source

    def _link(self, path: Path, member: tarfile.TarInfo) -> None:
        if os.path.isabs(member.linkname):
            raise UnsafeArchive(
                f"{member.name} is an absolute link to {member.linkname}", remedy=_NO_LINKS_OUT
            )
        self._clear(path, member.name)
        os.symlink(member.linkname, path)
        self._links.append(path)

    def _hard_link(self, path: Path, member: tarfile.TarInfo) -> None:
        source = self._inside(member.linkname, member.name)
        plain = source.parent in self._folders and source not in self._links
        if not plain or not source.is_file() or source.is_symlink():
            raise UnsafeArchive(
                f"{member.name} is a hard link to {member.linkname}, which the archive lacks",
                remedy="pack it again",
            )
        if source == path:
            return
        self._clear(path, member.name)
        os.link(source, path, follow_symlinks=False)

    def check_links(self) -> None:
        """Every link must end inside, also by way of others: known only when all are there."""
        root = os.path.realpath(self._root)
        for link in self._links:
            end = os.path.realpath(link)
            if end != root and not end.startswith(root + os.sep):
                raise UnsafeArchive(
                    f"{link.relative_to(self._root)} is a link out of the environment's folder",
                    remedy=_NO_LINKS_OUT,
                )
