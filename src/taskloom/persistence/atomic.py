"""Files that are there as a whole or not at all: a temporary neighbour, fsync, rename."""

from __future__ import annotations

import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: what a killed process left behind stays there
    fcntl = None  # type: ignore[assignment]


def check_place(path: str | os.PathLike) -> None:
    """Refuse a place where no file could be written, before time is spent on what goes into it.

    Parameters
    ----------
    path : str or path
        Where a file is to be written.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    if _is_stream(path):
        return
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} into")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"the folder {target.parent} cannot be written to; name another one for {target.name}")


def check_apart(outputs: dict[str, str | None], inputs: dict[str, str | None]) -> None:
    """Refuse to write over what is read, or over another output; keys say what each file is.

    Parameters
    ----------
    outputs : dict
        What each output is, to its path (or None).
    inputs : dict
        What each input is, to its path (or None).
    """
    taken = {os.path.realpath(path): what for what, path in inputs.items() if path is not None and not _is_stream(path)}
    for what, path in outputs.items():
        if path is None or _is_stream(path):
            continue
        place = os.path.realpath(path)
        if place in taken:
            raise ValueError(f"{path} is {taken[place]} already, and would be lost: give {what} another name")
        taken[place] = what


@contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary path beside ``path``; when the block ends well it takes its place, otherwise it is removed.

    Links are followed, and the permissions of a file that is replaced are kept. A process that is killed leaves its temporary
    file behind; the next one that writes the same file removes it. Pipes and devices (``/dev/stdout``) are written to directly.

    Parameters
    ----------
    path : str or path
        Where the file is to be.

    Yields
    ------
    Path
        Where to write it meanwhile.
    """
    check_place(path)
    target = Path(os.path.realpath(path))
    stem = f".{target.name[:100]}."
    with _naming(path):
        if _is_stream(path):
            yield Path(path)
            return
        _remove_abandoned(target.parent, stem)
        temporary, handle = _begin(target.parent, stem)
        try:
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o7777)
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        finally:
            os.close(handle)
    with suppress(OSError):  # the rename itself; not every system lets a folder be synced
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def atomic_write(path: str | os.PathLike, data: bytes) -> None:
    """Write a whole file at once.

    Parameters
    ----------
    path : str or path
        Where the file is to be.
    data : bytes
        Its content.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def _is_stream(path: str | os.PathLike) -> bool:
    """A pipe or a device: there is nothing to keep, and a rename would put a file in its place."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _naming(path: str | os.PathLike) -> Iterator[None]:
    """Errors of the system name the file that was asked for, not its temporary neighbour, or none (a full disk)."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.strerror is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _begin(folder: Path, stem: str) -> tuple[Path, int]:
    """A new temporary file, and an open handle whose lock says that its writer is alive."""
    while True:
        temporary = folder / f"{stem}{secrets.token_hex(8)}.tmp"
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)  # mode as the umask says
        if fcntl is None or not _locked(handle, wait=True) or os.path.exists(temporary):
            return temporary, handle
        os.close(handle)  # another writer took it for abandoned before it was locked


def _remove_abandoned(folder: Path, stem: str) -> None:
    """What killed writers of this file left: temporary files that nobody has locked."""
    if fcntl is None:
        return
    for name in glob.glob(f"{glob.escape(stem)}{'[0-9a-f]' * 16}.tmp", root_dir=folder, include_hidden=True):
        with suppress(OSError):
            handle = os.open(folder / name, os.O_WRONLY)
            try:
                if _locked(handle):
                    os.unlink(folder / name)
            finally:
                os.close(handle)


def _locked(handle: int, wait: bool = False) -> bool:
    """Lock a file for this handle; not every file system can."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
