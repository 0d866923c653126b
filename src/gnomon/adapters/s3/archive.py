"""The archive in a bucket: the same files as in a folder, each an object."""

import asyncio
from collections.abc import Sequence

from gnomon.adapters.archive import PackedFile, packed_files
from gnomon.adapters.s3.client import S3Client
from gnomon.errors import ArchiveUnavailable
from gnomon.ports.maintenance import ArchiveRecord


class S3Archive:
    """Archives records in a bucket, below a prefix.

    An object is read back and compared before its records may be deleted. Objects are named after the digest of their
    content, so that archiving the same records again writes the same objects again.
    """

    def __init__(self, client: S3Client, *, prefix: str) -> None:
        """The prefix is empty or ends with a slash."""
        self._client = client
        self._prefix = prefix

    async def keep(self, records: Sequence[ArchiveRecord]) -> None:
        """See Archive.keep."""
        for file in await asyncio.to_thread(packed_files, records):
            await self._keep(file)

    async def _keep(self, file: PackedFile) -> None:
        key = self._prefix + file.name
        await self._client.put(key, file.content)
        # One byte more than was written: an object that is longer must not look like the one that was written.
        if await self._client.get(key, max_bytes=len(file.content) + 1) != file.content:
            raise ArchiveUnavailable(f"the object {key} does not read back as written")
