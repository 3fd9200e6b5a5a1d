"""The folder of data files, and downloads into it: resumable, with checksums."""

from __future__ import annotations

import hashlib
import os
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 16


@dataclass(frozen=True)
class Remote:
    """A file on the web; ``sha256`` is ``None`` where none is published (then its contents are checked when read)."""

    name: str
    url: str
    sha256: str | None = None


def get_data_home(data_home: str | os.PathLike | None = None) -> Path:
    """The folder of data files: the argument, else the environment variable ``TASKLOOM_DATA``, else ``~/taskloom_data``.

    Parameters
    ----------
    data_home : str or path, default=None
        The folder, if not the default one.

    Returns
    -------
    Path
        The folder; it need not exist.
    """
    return Path(data_home or os.environ.get("TASKLOOM_DATA") or "~/taskloom_data").expanduser()


def digest(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(remote: Remote, folder: Path, timeout: float = 30.0) -> Path:
    """Download a file into the folder.

    Bytes go to ``NAME.part``; an interrupted download continues there (HTTP ``Range``). The file appears under its name only
    when it is complete and its checksum agrees, so a file under its final name is complete.

    Raises
    ------
    OSError
        The network cannot be reached, or stopped halfway.
    ValueError
        The checksum does not agree; nothing is kept.
    """
    target, part = folder / remote.name, folder / f"{remote.name}.part"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            resumed = answer.status == 206
            expected = answer.headers.get("Content-Length")
            with part.open("ab" if resumed else "wb") as file:
                shutil.copyfileobj(answer, file, CHUNK)
                whole = None if expected is None else int(expected) + (done if resumed else 0)
                if whole is not None and file.tell() != whole:
                    raise OSError(f"{remote.url} stopped after {file.tell()} of {whole} bytes; call again to continue")
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: there is nothing after what we have
            raise
    found = digest(part)
    if remote.sha256 is not None and found != remote.sha256:
        part.unlink()
        raise ValueError(f"{remote.url} has sha256 {found}, expected {remote.sha256}: the file was not kept; try again later")
    os.replace(part, target)
    return target


def obtain(what: str, remotes: list[Remote], folder: Path, download_if_missing: bool, local: str) -> list[Path]:
    """The files, from the folder or from the network; otherwise one message that says what to do."""
    missing = [remote for remote in remotes if not (folder / remote.name).exists()]
    advice = (
        f"put {local} into {folder}, or name another folder (data_home=, --data, or the environment variable TASKLOOM_DATA)"
    )
    if missing and not download_if_missing:
        raise OSError(f"{what} is not in {folder} and download_if_missing=False: {advice}")
    if any(not remote.url for remote in missing):
        raise OSError(f"{what} is not in {folder} and is not published anywhere: {advice}")
    try:
        return [download(remote, folder) for remote in remotes]
    except OSError as error:
        raise OSError(f"{what} could not be downloaded ({error}): {advice}") from error
