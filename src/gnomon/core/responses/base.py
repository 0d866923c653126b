"""The base of all responses, and the page of a list."""

from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Response(Struct, frozen=True, kw_only=True):
    """The base of all responses."""


class Page(Response, Generic[T], frozen=True, kw_only=True):
    """One page of a list."""

    items: list[T]
    #: The cursor of the next page; None if this is the last.
    next: str | None = None
