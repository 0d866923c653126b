"""Reads the text of a policy file."""

from gnomon.adapters.files import error_sentence
from gnomon.adapters.yaml_parser import YamlDocumentError, compose
from gnomon.core.policy.document import PolicyDocument
from gnomon.core.policy.reader import LARGEST_POLICY, read_policy
from gnomon.errors import FieldError, FileError


def parse_policy(text: str, *, name: str = "policy") -> PolicyDocument:
    """The policy in the text; FileError names the line and the field of the first mistake."""
    if len(text) > LARGEST_POLICY:
        raise FileError(name, f"has {len(text)} characters; at most {LARGEST_POLICY} are allowed")
    try:
        root = compose(text, showing=True)
    except YamlDocumentError as refusal:
        line, column = refusal.place or (None, None)
        raise FileError(name, refusal.reason, line=line, column=column, field=refusal.path) from None
    try:
        return read_policy(root.to_data())
    except FieldError as error:
        line, column = root.position_of(error.field)
        raise FileError(name, error_sentence(error), line=line, column=column, field=error.field) from None
