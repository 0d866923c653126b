"""The secrets of jobs, from the environment of the process and from guarded files."""

import os
from pathlib import Path

from gnomon.adapters.guarded_files import read_file
from gnomon.config.sections import SecretsSettings
from gnomon.runners.secrets import SecretSource


def secret_source(settings: SecretsSettings) -> SecretSource:
    """The secrets that the settings allow. A file that others may write to is refused: they would choose the secret."""
    return SecretSource(settings, os.environ, read_file=_read_guarded)


def _read_guarded(path: Path, most: int) -> bytes:
    return read_file(path, largest=most, guarded=True)
