"""A user's file as text: found, of bearable size, not binary; nothing in it is ever run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from chipshift.errors import InputError, nearest

LIMIT_BYTES = 16 * 1000 * 1000
"""Largest job file read: real ones are a few kB, and a reader must not be a way to fill memory."""


@dataclass(frozen=True)
class Source:
    """One file of the user's.

    Attributes:
        path: as the user wrote it; printed in every message and table.
        text: decoded, with line ends as ``\\n`` and without a byte-order mark.
        twice: grows by each key that a parser finds again in its table with another value, and
            the line of the later one, which is taken.
    """

    path: str
    text: str
    twice: dict[str, int] = field(default_factory=dict, compare=False)


def load(path: str) -> Source:
    """Read a file whole.

    Raises:
        InputError: missing, a directory, not a regular file, unreadable, above ``LIMIT_BYTES``,
            or not text.
    """
    if not path.strip():
        raise InputError("a job file's name is empty; expected a path")
    place = Path(path)
    try:
        if place.is_dir():
            raise InputError(f"{path} is a folder; expected the job file in it{_inside(place)}")
        if not place.exists():
            raise InputError(f"{path} does not exist{_beside(place)}")
        if not place.is_file():
            raise InputError(f"{path} is not a regular file; expected a job file")
        size = os.path.getsize(place)
        if size > LIMIT_BYTES:
            raise InputError(
                f"{path} is {size / 1e6:.1f} MB; expected a job file of at most "
                f"{LIMIT_BYTES // 1_000_000} MB"
            )
        with place.open("rb") as handle:
            raw = handle.read(LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path!r} cannot be read: {reason}") from None
    return Source(path, decode(raw, path))


def decode(raw: bytes, path: str) -> str:
    """Bytes to text: UTF-8 (a mark allowed) or marked UTF-16; line ends made ``\\n``.

    Raises:
        InputError: binary content, or text in another encoding, with the offset.
    """
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig"
        if b"\x00" in raw:
            raise InputError(f"{path} is a binary file; expected a text job file")
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte {error.start}); expected a text job file"
        ) from None
    if "\x00" in text:
        raise InputError(f"{path} is a binary file; expected a text job file")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _inside(folder: Path) -> str:
    try:
        names = sorted(
            entry.name
            for entry in folder.iterdir()
            if entry.suffix in {".toml", ".sh", ".json", ".yaml", ".yml", ".py"}
        )
    except OSError:
        return ""
    return f", such as '{folder / names[0]}'" if names else ""


def _beside(place: Path) -> str:
    try:
        names = [str(place.parent / entry.name) for entry in place.parent.iterdir()]
    except OSError:
        return ""
    return nearest(str(place), names)
