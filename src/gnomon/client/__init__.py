"""HTTP clients of a scheduler: `Client` blocks, `AsyncClient` is awaited. Both have the same methods."""

from gnomon.client.async_client import AsyncClient
from gnomon.client.sync_client import Client

__all__ = ["AsyncClient", "Client"]
