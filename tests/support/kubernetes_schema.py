"""The types of Kubernetes objects, generated from its OpenAPI description.

`lightkube-models` has the types. It imports their base class from `lightkube`, a client that would bring an HTTP stack
along; the base class here refuses unknown fields instead.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class KubernetesObject(msgspec.Struct, forbid_unknown_fields=True):
    """The base of all types."""


def _field(metadata: dict[str, str], default: Any = msgspec.NODEFAULT) -> Any:  # noqa: ANN401 - the field of any type
    return msgspec.field(name=metadata["json"], default=default)


def _unchanged(kind: T) -> T:
    return kind


def _provide_base() -> None:
    schema = ModuleType("lightkube.core.schema")
    vars(schema).update(DictMixin=KubernetesObject, field=_field, dataclass=_unchanged)
    sys.modules.setdefault("lightkube.core", ModuleType("lightkube.core"))
    sys.modules.setdefault("lightkube.core.schema", schema)


def read_object(manifest: dict[str, Any]) -> KubernetesObject:
    """The object of a manifest; msgspec.ValidationError names the path of a field that is unknown, missing or wrong."""
    _provide_base()
    group, _, version = manifest["apiVersion"].rpartition("/")
    module = import_module(f"lightkube.models.{group.partition('.')[0] or 'core'}_{version}")
    found: KubernetesObject = msgspec.convert(manifest, getattr(module, manifest["kind"]))
    return found
