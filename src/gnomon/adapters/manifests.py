"""Manifests: files of several YAML documents, as other programs write them."""

from typing import Any, NoReturn

import yaml

from gnomon.errors import FileError

_DEEPEST = 64


class _Loader(yaml.SafeLoader):
    """Plain data only, and none of it twice: an alias could make a small file a very large one."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - as the library has it
        """See the library."""
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="has an alias, and none is read here", problem_mark=mark)
        self.depth += 1
        if self.depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"is nested more than {_DEEPEST} deep", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_manifest(name: str, text: str) -> list[Any]:
    """The documents of the text; FileError names the line of what is no YAML."""
    try:
        return list(yaml.load_all(text, _Loader))
    except yaml.MarkedYAMLError as error:
        _refuse(name, error)
    except (yaml.YAMLError, ValueError, OverflowError, TypeError) as error:
        raise FileError(name, f"is no YAML: {error}") from None


def _refuse(name: str, error: yaml.MarkedYAMLError) -> NoReturn:
    mark = error.problem_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    raise FileError(name, f"is no YAML: {error.problem}", line=line, column=column) from None
