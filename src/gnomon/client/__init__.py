"""Talking to a scheduler over HTTP: `Client` waits for each answer, `AsyncClient` is awaited. Both say the same."""

from gnomon.client.async_client import AsyncClient
from gnomon.client.sync_client import Client

__all__ = ["AsyncClient", "Client"]
