"""Talking to a scheduler over HTTP: `Client` waits for each answer, `AsyncClient` is awaited. Both say the same."""

from gnomon.client.asynchronous import AsyncClient
from gnomon.client.synchronous import Client

__all__ = ["AsyncClient", "Client"]
