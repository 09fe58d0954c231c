"""Text of a file of measured runs, compressed or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from chipshift.errors import InputError

GZIP = b"\x1f\x8b"


def text_of(path: Path) -> str:
    """The file's text: UTF-8 with or without a byte order mark, gzip undone, lines ended by \\n.

    Raises:
        InputError: it cannot be read, or is not such text.
    """
    try:
        data = path.read_bytes()
        if data.startswith(GZIP):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InputError(f"{path}: cannot be read ({why})") from None
