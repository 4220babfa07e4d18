"""Files that jobs append to, read on from where the last look ended. Everything here blocks on the disk."""

import os
import time
from collections.abc import Iterator

from dibs.supervise.folder import open_own_file

_PIECE = 256 * 1024  # bytes
_MOST_READ = 64 * 1024**2  # bytes at once; only the end of longer files is read


class GrowingFile:
    """Each byte is read once. A file that does not exist, or is not a regular file of ours, is empty."""

    def __init__(self, path: str, began: float = 0.0) -> None:
        """`began`: when its first line can have been written at the earliest, in seconds since the epoch."""
        self.path = path
        self.skipped = 0  # bytes
        self.times_begun = 0  # more than one: it was emptied or replaced, and is read from its beginning again
        self.is_read = True  # to its end, as it was at the last look
        self.at = began  # when the last byte that was read was written, estimated
        self.began = began
        self._offset = 0
        self._identity: tuple[int, int] | None = None

    def pieces(self, deadline: float | None = None) -> Iterator[bytes]:
        """The new bytes, piece by piece, until a moment of the monotonic clock."""
        try:
            handle = open_own_file(self.path)
        except OSError:
            return
        try:
            about = os.fstat(handle)
            self._begin(about)
            begin, begun_at = self._offset, self.at
            is_cut = about.st_size - begin > _MOST_READ
            if is_cut:
                begin = about.st_size - _MOST_READ
                self.skipped += begin - self._offset
                self._offset = begin
            os.lseek(handle, begin, os.SEEK_SET)
            self.is_read = True
            while self._offset < about.st_size:
                if deadline is not None and time.monotonic() >= deadline:
                    self.is_read = False
                    return
                piece = os.read(handle, min(_PIECE, about.st_size - self._offset))
                if not piece:
                    return
                self._offset += len(piece)
                # Lines have no time of their own: they are taken to have come evenly.
                part = (self._offset - begin) / (about.st_size - begin)
                self.at = begun_at + max(0.0, about.st_mtime - begun_at) * part
                if is_cut:  # the piece begins inside a line, which is dropped
                    yield b"\n"
                    piece, is_cut = piece[piece.find(b"\n") + 1 :], False
                yield piece
        except OSError:
            pass  # the bytes read so far count
        finally:
            os.close(handle)

    def _begin(self, about: os.stat_result) -> None:
        identity = (about.st_dev, about.st_ino)
        if identity != self._identity or about.st_size < self._offset:
            self.times_begun += 1
            self._identity, self._offset, self.skipped, self.at = identity, 0, 0, self.began
