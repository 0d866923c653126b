"""The newest checkpoint of the audit trail in a file, outside the store."""

from pathlib import Path

import msgspec

from gnomon.adapters.auth.local_key import read_private_file, replace_file
from gnomon.core.audit import SignedCheckpoint
from gnomon.errors import FileError


class CheckpointFile:
    """Implements CheckpointAnchor."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> SignedCheckpoint | None:
        """See CheckpointAnchor.read; FileError if the file has something else."""
        text = read_private_file(self._path)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=SignedCheckpoint)
        except msgspec.MsgspecError:
            raise FileError(self._path, "holds no checkpoint of the audit trail") from None

    def write(self, checkpoint: SignedCheckpoint) -> None:
        """See CheckpointAnchor.write."""
        replace_file(self._path, f"{msgspec.json.encode(checkpoint).decode()}\n")
