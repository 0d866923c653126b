"""Reads the text of a policy file, and of a file with test cases."""

from collections.abc import Callable, Collection
from typing import TypeVar

from gnomon.adapters.files import error_sentence
from gnomon.adapters.yaml_parser import YamlDocumentError, compose
from gnomon.core.policy.cases import PolicyCase, read_cases
from gnomon.core.policy.document import PolicyDocument
from gnomon.core.policy.reader import read_policy
from gnomon.core.policy.version import LARGEST_POLICY
from gnomon.errors import FieldError, FileError

T = TypeVar("T")


def parse_policy(text: str, *, name: str = "policy") -> PolicyDocument:
    """The policy in the text; FileError names the line and the field of the first mistake."""
    return _parsed(text, name, read_policy)


def parse_cases(text: str, *, name: str = "cases") -> tuple[PolicyCase, ...]:
    """The test cases in the text; FileError names the line and the field of the first mistake."""
    return _parsed(text, name, read_cases, instants=("at",))


def _parsed(text: str, name: str, read: Callable[[object], T], *, instants: Collection[str] = ()) -> T:
    if len(text) > LARGEST_POLICY:
        raise FileError(name, f"has {len(text)} characters; at most {LARGEST_POLICY} are allowed")
    try:
        root = compose(text, instants=instants, showing=True)
    except YamlDocumentError as refusal:
        line, column = refusal.place or (None, None)
        raise FileError(name, refusal.reason, line=line, column=column, field=refusal.path) from None
    try:
        return read(root.to_data())
    except FieldError as error:
        line, column = root.position_of(error.field)
        raise FileError(name, error_sentence(error), line=line, column=column, field=error.field) from None
