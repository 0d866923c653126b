"""The paths that the words of a command may name, and whether a policy lets a command name them.

Every word counts as a path, and so does each part of it that a program could take for one: behind one of `=@:,;<>`,
behind the letter of an option, and in a `file:` URL. A part that leads out of the workspace is found by resolving
it, and not by how it looks, so a message such as `see /etc/hosts` is a name in the workspace and `link/x` is not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from gnomon.core.commands.files import FileView, is_inside, normal_path

#: The folders of the system that no command may name by default.
SYSTEM_FOLDERS = tuple(
    "/etc /root /home /usr /bin /sbin /lib /opt /boot /dev /proc /sys /var /tmp"
    " /lib32 /lib64 /libx32 /media /mnt /private /run /srv".split()
)
#: The folders of a home that no command may name by default.
HOME_FOLDERS = tuple("~/.ssh ~/.gnupg ~/.aws ~/.config".split())
_SYSTEM = frozenset(SYSTEM_FOLDERS)
#: It holds nothing, and takes everything.
_HARMLESS = "/dev/null"
_SEPARATORS = re.compile("[=@:,;<>]")
#: Most words are plain: the whole word is then the only part that could be a path.
_PLAIN = re.compile("(?!-)[^=@:,;<>]{1,255}")
#: The separators, and the sign of a character that is decoded.
_COUNTED = "=@:,;<>%"
#: The letters of options, whose last one may have a path behind it.
_LETTERS = re.compile(r"-[A-Za-z0-9#?+%^_]*")
#: Brackets and braces before it may be a pattern of the program, which makes another scheme of it: `[f-f]ile:`.
_SCHEME = re.compile(r"(?:^|[^A-Za-z0-9+.\-\]}])([A-Za-z][A-Za-z0-9+.-]*):$")
_LONGEST_SCHEME = 32
#: The parts of a repository by which git reads the others.
_REPOSITORY = (".git", ".git/config", ".git/objects", ".git/refs", ".git/index")
#: The text behind `scheme:` in a URL with the name of a host.
_HOST = re.compile("//[^/.=@:,;<>]")
_FILE_URL = re.compile("file:(/[^,;<>]*)", re.IGNORECASE)
#: Some programs look for such a path in a home themselves.
_HOME = re.compile(r"~(?:[A-Za-z_][\w.-]*)?(?:/.*)?", re.DOTALL)
_HOMES = ("/root", "/home/", "/Users/")
_IN_HOMES = ("/root/", "/home/", "/Users/")
_HOME_FOLDER = re.compile("/root|/(?:home|Users)/[^/.][^/]*")
_PERCENT = re.compile("%([0-9A-Fa-f]{2})")
#: The kernel opens no longer path, and has no longer name.
_LONGEST_PATH = 4096
_LONGEST_NAME = 255
#: The most work that one command may cost: parts that could be paths, their characters, and the names in them, each of
#: which may be a question to the file system.
_MOST_CANDIDATES = 20_000
_MOST_CHARACTERS = 1_000_000
_MOST_NAMES = 20_000
#: The parts of a longer word are counted before they are looked at.
_SHORT_WORD = 256
_SPECIAL = str.maketrans({character: f"[{character}]" for character in "*?["})


def is_in_repository(path: str) -> bool:
    """Whether the path is `.git`, in any spelling that a file system may take for it, or lies in such a folder."""
    return any(part.lower() == _REPOSITORY[0] for part in path.split("/"))


class PathRules:
    """Whether a policy lets one command name a path."""

    def __init__(
        self,
        files: FileView,
        workspace: str,
        *,
        forbidden: Sequence[str],
        roots: Sequence[str],
        workspace_only: bool,
        home: str,
    ) -> None:
        """`roots` are folders beside the workspace. Entries that begin with `~/` lie in every home that is known."""
        self._files = files
        self._workspace_only = workspace_only
        self._workspace = normal_path(workspace)
        self._workspaces = self._with_targets((self._workspace,))
        self._roots = self._with_targets((self._workspace, *map(normal_path, roots))) if roots else self._workspaces
        #: With the beginning of what lies in each, the longest first.
        longest_first = sorted(self._roots, key=len, reverse=True)
        self._nearest_first = [(root, root if root == "/" else f"{root}/") for root in longest_first]
        folders, self._in_homes, self._names_in_homes = _entries(tuple(forbidden), home)
        # A folder of the system that is a link leads out of the workspace, which is enough if nothing else is allowed.
        certain = _SYSTEM if workspace_only and not roots else frozenset[str]()
        self._forbidden = folders + self._with_targets(tuple(folder for folder in folders if folder not in certain))
        self._forbidden_in_roots = _inside(self._forbidden, self._roots)
        self._held = _by_folder(self._forbidden_in_roots if workspace_only else self._forbidden)
        self._is_held = False
        self._candidates = self._characters = self._names = 0
        #: Parts that have been judged, so that a word that is repeated costs nothing.
        self._allowed: set[str] = set()

    @property
    def above(self) -> Sequence[str]:
        """The folders that hold the workspace and the roots, if nothing else may be named."""
        if not self._workspace_only:
            return ()
        return tuple(dict.fromkeys(root.rpartition("/")[0] or "/" for root in self._roots))

    def refused_repository(self, folder: str = "") -> str | None:
        """The first path of a repository that git would find from a folder, and that leads out; None if none does."""
        holder = self._files.resolve(folder)
        while holder and self._nearest_root(holder):
            for path in [f"{holder}/{part}" for part in _REPOSITORY]:
                if self._files.resolve(path) != path and (found := self.refused(path)):
                    return found
            holder = holder.rpartition("/")[0]
        return None

    def refused(self, word: str, folder: str = "") -> str | None:
        """The first path in a word that the policy refuses, seen from a folder; None if there is none."""
        if folder:
            return self._refused_below(word, folder)
        if word in self._allowed:
            return None
        if len(word) > _SHORT_WORD:
            self._candidates += sum(map(word.count, _COUNTED))
            if self.is_exhausted:
                return word
        for candidate in (word,) if word.isalnum() or _PLAIN.fullmatch(word) else _candidates(word):
            if not candidate or candidate in self._allowed:
                continue
            if not self._count(candidate) or not (
                self._is_harmless(candidate) or self._may_name(candidate, wholly=True)
            ):
                return candidate
            self._allowed.add(candidate)
        self._allowed.add(word)
        return None

    def _refused_below(self, word: str, folder: str) -> str | None:
        """The same for another folder than that of the command. Absolute paths have been judged without it."""
        for candidate in _candidates(word):
            path = f"{folder}/{candidate}"
            if candidate.startswith("/") or path in self._allowed:
                continue
            if not self._count(path) or not self._may_name(path, wholly=True):
                return path
            self._allowed.add(path)
        return None

    def _count(self, candidate: str) -> bool:
        """Count a part that could be a path; False if it is one more than can be checked."""
        self._candidates += 1
        self._characters += len(candidate)
        self._names += candidate.count("/")
        return not self.is_exhausted

    def _is_harmless(self, candidate: str) -> bool:
        return candidate[0] == "/" and normal_path(candidate) == _HARMLESS

    @property
    def note(self) -> str:
        """The part of a reason that the path itself does not show; an empty text if there is none."""
        if self.is_exhausted:
            return " (more parts of its words could be paths than can be checked)"
        return " (a forbidden path lies in it)" if self._is_held else ""

    @property
    def is_exhausted(self) -> bool:
        """Whether the words hold more parts than can be checked: the next one is refused."""
        return self._candidates > _MOST_CANDIDATES or self._characters > _MOST_CHARACTERS or self._names > _MOST_NAMES

    def may_list(self, folder: str) -> bool:
        """Whether the paths in a folder may be looked at; `folder` may be empty, for that of the command."""
        if not folder or folder in self._allowed:
            return True
        return self._count(folder) and self._may_name(folder)

    def is_in_workspace(self, path: str, resolved: str) -> bool:
        """Whether an absolute path, or that to which it leads, is in the workspace."""
        return any(is_inside(path, one) or is_inside(resolved, one) for one in self._workspaces)

    def is_in_root(self, path: str, resolved: str) -> bool:
        """Whether an absolute path, or that to which it leads, is where commands may write."""
        return bool(self._nearest_root(path) or self._nearest_root(resolved))

    def _with_targets(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """The paths, and those to which they lead."""
        return tuple(dict.fromkeys((*paths, *map(self._files.resolve, paths))))

    def _may_name(self, candidate: str, *, wholly: bool = False) -> bool:
        """Whether a path may be named; `wholly`, with everything that lies in it."""
        if candidate.startswith("~") and _HOME.fullmatch(candidate):
            return False
        if len(candidate) > _LONGEST_PATH:
            path = normal_path(candidate, self._workspace)
        else:
            path = self._files.resolve(candidate)
        # A path such as /proc/self/cwd leads the program to another file, so the path as it is written counts, too.
        written = normal_path(candidate) if candidate.startswith("/") else path
        if not self._may_lead_to(path) or (written != path and not self._may_lead_to(written)):
            return False
        self._is_held = wholly and (self._holds_forbidden(path) or (written != path and self._holds_forbidden(written)))
        return not self._is_held

    def _holds_forbidden(self, path: str) -> bool:
        """Whether something forbidden lies in the folder, which a program could read with it.

        Without the files, an entry counts as if it were there.
        """
        entries = self._held.get(path, ())
        if self._in_homes and path.startswith(_HOMES) and _HOME_FOLDER.fullmatch(path):
            entries = (*entries, *(f"{path}/{entry}" for entry in self._in_homes))
        return bool(entries) and any(self._files.matches(entry.translate(_SPECIAL)) != [] for entry in entries)

    def _may_lead_to(self, path: str) -> bool:
        nearest = self._nearest_root(path)
        if not nearest:
            return not self._workspace_only and not self._is_forbidden(path, self._forbidden, nearest)
        return not self._is_forbidden(path, self._forbidden_in_roots, nearest)

    def _nearest_root(self, path: str) -> int:
        """The length of the longest root that holds the path; 0 if none does."""
        for root, beginning in self._nearest_first:
            if path == root or path.startswith(beginning):
                return len(root)
        return 0

    def _is_forbidden(self, path: str, entries: Sequence[str], nearest: int) -> bool:
        """Whether one of the entries holds the path, and no root inside that entry does."""
        for entry in entries:
            if len(entry) > nearest and is_inside(path, entry):
                return True
        in_home = _in_home(path) if self._in_homes and path.startswith(_IN_HOMES) else None
        if in_home is None or in_home.partition("/")[0] not in self._names_in_homes:
            return False
        home = len(path) - len(in_home)
        return any(home + len(entry) > nearest and is_inside(in_home, entry) for entry in self._in_homes)


@lru_cache(maxsize=64)
def _entries(forbidden: tuple[str, ...], home: str) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
    """The forbidden folders as normal paths, those that lie in every home, and the names with which these begin."""
    in_homes = tuple(normal_path(entry.removeprefix("~/"))[1:] for entry in forbidden if entry.startswith("~/"))
    folders = [entry for entry in forbidden if not entry.startswith("~/")]
    if home:
        folders += [f"{home}/{entry}" for entry in in_homes]
    return tuple(map(normal_path, folders)), in_homes, frozenset(entry.partition("/")[0] for entry in in_homes)


@lru_cache(maxsize=64)
def _inside(entries: tuple[str, ...], roots: tuple[str, ...]) -> tuple[str, ...]:
    """The entries that lie in one of the roots."""
    return tuple(entry for entry in entries if any(is_inside(entry, root) for root in roots))


@lru_cache(maxsize=64)
def _by_folder(entries: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """The entries by each of the folders in which they lie."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        folder = entry
        while folder != "/":
            folder = folder.rpartition("/")[0] or "/"
            found[folder] = (*found.get(folder, ()), entry)
    return found


def _in_home(path: str) -> str | None:
    """The path inside the home of a user; None if it is in none."""
    if path.startswith("/root/"):
        return path[len("/root/") :]
    for homes in ("/home/", "/Users/"):
        if path.startswith(homes):
            return path[len(homes) :].partition("/")[2]
    return None


def _candidates(word: str) -> Iterator[str]:
    """The parts of a word that a program could take for a path, the whole word included."""
    climbs = "../" in word
    for start, end in _places(word):
        # A part without `..` that begins with a longer name, or is longer than a path, names no file.
        is_long = end - start > _LONGEST_NAME and not climbs and word[start] != "/"
        if not is_long or (end - start <= _LONGEST_PATH and word.find("/", start, start + _LONGEST_NAME + 1) >= 0):
            yield word[start:end]
    if ":/" in word:
        yield from _in_file_urls(word)


def _places(word: str) -> Iterator[tuple[int, int]]:
    """Where the parts of a word begin and end that could be paths."""
    yield 0, len(word)
    breaks = [found.start() for found in _SEPARATORS.finditer(word)]
    if word.startswith("-") and not word.startswith("--"):
        yield from _behind_letters(word, breaks[0] if breaks else len(word))
    if not breaks:
        return
    yield 0, breaks[0]
    for place, following in zip(breaks, [*breaks[1:], len(word)], strict=True):
        if not word.startswith("://", place) or not _is_server(word, place):
            yield place + 1, len(word)
            if following < len(word):
                yield place + 1, following


def _behind_letters(word: str, first_break: int) -> Iterator[tuple[int, int]]:
    """The values that may stand behind each letter of an option, as in `-f/etc/passwd` or `-nf../x`."""
    found = _LETTERS.match(word)
    letters = found.end() if found else 1
    slash = word.find("/")
    # The names that would begin further in front are too long.
    nearest = (slash if slash >= 0 else len(word)) - _LONGEST_NAME
    for start in range(max(2, nearest), letters + 1):
        yield start, len(word)
        if first_break < len(word):
            yield start, max(start, first_break)


def _is_server(word: str, colon: int) -> bool:
    """Whether the scheme before a `://` and the host behind it are those of a server."""
    scheme = _SCHEME.search(word, max(0, colon - _LONGEST_SCHEME), colon + 1)
    return scheme is not None and scheme[1].lower() != "file" and _HOST.match(word, colon + 1) is not None


def _in_file_urls(word: str) -> Iterator[str]:
    """The paths of `file:/PATH` and `file://HOST/PATH`, decoded, and of anything that looks like it."""
    for found in _FILE_URL.finditer(word):
        decoded = _PERCENT.sub(lambda digits: chr(int(digits[1], 16)), found[1])
        yield decoded
        if decoded.startswith("//"):
            yield "/" + decoded[2:].partition("/")[2]
