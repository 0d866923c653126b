"""The arguments that a policy refuses because the program would run, write or read something that no word names.

A long option is refused in every abbreviation, and a letter also in the middle of others. The default programs whose
subcommands load plugins, aliases or scripts (`git`, `npm`, `cargo`) have lists of what is allowed instead. A program
without an entry here is judged by its paths alone.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from msgspec import Struct

#: Programs that only read.
_READERS = frozenset("cat echo find grep head ls pwd tail wc".split())
#: A path in the folder of a repository, whose files name programs that git starts.
_REPOSITORY = re.compile(r"(?:^|[/=:,@;<>]|^-[A-Za-z0-9]+)\.git(?:/|$)", re.IGNORECASE)


class RefusedArgument(NamedTuple):
    """An argument that a program may not be given: its place among the words, or 0 if one is missing."""

    program: str
    place: int

    def reason(self, shown: str) -> str:
        """Why it is refused, with the word as it is shown to people."""
        if not self.place:
            return f"{self.program} needs an argument here"
        return f"{self.program} may not be given {shown}"


class _FolderOption(NamedTuple):
    """An option by which a program goes to another folder before it opens the paths in its other words."""

    long: tuple[str, ...]
    letter: str = ""
    #: An option of another meaning with which the long one begins.
    other: str = "--"

    def places(self, words: Sequence[str]) -> Iterator[tuple[int, str]]:
        """The place of each word that may be or hold the option, and its value."""
        for place, word in enumerate(words[1:], 1):
            name, equals, value = word.partition("=")
            following = "".join(words[place + 1 : place + 2])
            if word.startswith("--"):
                if len(name) > len(self.other) and any(option.startswith(name) for option in self.long):
                    yield place, value if equals else following
            elif self.letter and word.startswith("-") and self.letter in word:
                yield place, word.partition(self.letter)[2] or following


class _ArgumentRule(Struct, frozen=True, kw_only=True):
    """Which arguments of a program are refused."""

    #: Long options, with their abbreviations and with values behind `=`.
    long: frozenset[str] = frozenset()
    #: Letters of options. `valued` are those whose value is the rest of the word.
    letters: str = ""
    valued: str = ""
    #: Words that are refused as they are.
    words: frozenset[str] = frozenset()
    #: A check of its own: the place of the word that it refuses.
    check: Callable[[Sequence[str]], int | None] | None = None
    #: The places of words that are scripts, which the check has read, and no paths.
    scripts: Callable[[Sequence[str]], Sequence[int]] | None = None
    #: The option that names another folder. It is refused if it stands there twice: its values would add up.
    folder: _FolderOption | None = None

    def first_refused(self, words: Sequence[str]) -> int | None:
        """The place of the first word that is refused, 0 for a missing one, None if there is none."""
        if self.words or self.long or self.letters:
            for place, word in enumerate(words[1:], 1):
                if word in self.words or self.refuses_option(word):
                    return place
        if self.folder is not None and (places := [place for place, _ in self.folder.places(words)])[1:]:
            return places[1]
        return self.check(words) if self.check else None

    def refuses_option(self, word: str) -> bool:
        """Whether the word is or holds an option that is refused."""
        if word.startswith("--"):
            name = word.partition("=")[0]
            return name in _abbreviations(self.long)
        if not word.startswith("-") or not self.letters:
            return False
        for letter in word[1:]:
            if letter in self.letters:
                return True
            if letter in self.valued:
                return False
        return False


@cache
def _abbreviations(options: frozenset[str]) -> frozenset[str]:
    """The long options, and all beginnings by which a program may know them."""
    return frozenset(option[:end] for option in options for end in range(len("--") + 1, len(option) + 1))


def has_rule(name: str) -> bool:
    """Whether arguments of a program with this name are refused."""
    return name in _RULES


def program_name(written: str) -> str:
    """The name of a program that is written as a name or a path."""
    return written.rpartition("/")[2]


def refused_argument(names: Collection[str], words: Sequence[str]) -> RefusedArgument | None:
    """The first of the words that the program with these names may not be given; None if it may be given all."""
    if _READERS.isdisjoint(names) and (repository := _repository_place(words)) is not None:
        return RefusedArgument(program_name(words[0]), repository)
    for name in names:
        rule = _RULES.get(name)
        if rule is not None and (place := rule.first_refused(words)) is not None:
            return RefusedArgument(name, place)
    return None


def _repository_place(words: Sequence[str]) -> int | None:
    """The place of the first word that names a path in the folder of a repository."""
    for place, word in enumerate(words):
        if ".git" in word.lower() and _REPOSITORY.search(word):
            return place
    return None


def script_places(names: Collection[str], words: Sequence[str]) -> frozenset[int]:
    """The places of the words that are scripts of this program. The check of its arguments must have allowed them."""
    for name in names:
        rule = _RULES.get(name)
        if rule is not None and rule.scripts is not None:
            return frozenset(rule.scripts(words))
    return frozenset()


def entered_folders(names: Collection[str], words: Sequence[str]) -> frozenset[str]:
    """The folders besides its own from which the program with these names may look at the paths in its words.

    The check of its arguments must have allowed them.
    """
    found: set[str] = set()
    if "git" in names:
        found.update(words[place + 1] for place in _git_folders(words) if place + 1 < len(words))
    if "ln" in names:
        # The target of a link is seen from the folder in which the link is.
        found.update(one for word in words[1:] for one in (word, word.rpartition("/")[0]))
    for name in names:
        rule = _RULES.get(name)
        if rule is not None and rule.folder is not None:
            found.update(value for _, value in rule.folder.places(words))
    return frozenset(found - {"", "."})


def fixed_variables(names: Collection[str], above: Sequence[str]) -> dict[str, str]:
    """The variables that a program gets in any case, so that it starts nothing that a file in the workspace names.

    In the folders `above` the workspace no program looks for files of its own.
    """
    found = {name: value for program in names for name, value in _FIXED_VARIABLES.get(program, {}).items()}
    if "git" in names and above:
        found["GIT_CEILING_DIRECTORIES"] = ":".join(above)
    return found


def subcommand(program: str, words: Sequence[str]) -> str | None:
    """The subcommand that a program such as git is given; None if there is none.

    No word further on is one: it could as well be the value of an option.
    """
    place = _git_subcommand(words) if program == "git" else 1
    return words[place] if place < len(words) and not words[place].startswith("-") else None


def _long(text: str) -> frozenset[str]:
    return frozenset(f"--{name}" for name in text.split())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# git: subcommands that are part of it, so that no alias has their names. Its repository lies in the workspace and may
# name programs in its configuration, or hold hooks; the variables override what can be overridden.

_GIT_GLOBALS = _words(
    "-P --no-pager --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-optional-locks "
    "--no-replace-objects"
)
_GIT_SUBCOMMANDS = _words(
    "add annotate apply blame branch cat-file check-ignore check-ref-format checkout cherry cherry-pick clean clone "
    "commit count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref fsck gc grep init log "
    "ls-files ls-remote ls-tree merge merge-base merge-tree mv name-rev pull push range-diff rebase reflog remote "
    "reset restore rev-list rev-parse revert rm shortlog show show-branch show-ref stash status switch symbolic-ref "
    "tag version whatchanged"
)
_GIT_OPTIONS = _long(
    "upload-pack receive-pack exec exec-path output output-directory open-files-in-pager ext-diff template config "
    "config-env separate-git-dir git-dir work-tree extcmd tool strategy unsafe-paths recurse-submodules recursive "
    "remote-submodules"
)
_GIT_RULES = {
    "clone": _ArgumentRule(long=_GIT_OPTIONS, letters="uc", valued="bjo"),
    "grep": _ArgumentRule(long=_GIT_OPTIONS, letters="O", valued="efmABC"),
    "ls-remote": _ArgumentRule(long=_GIT_OPTIONS, letters="u", valued="o"),
    # A strategy such as `x/../tool` is a file in the workspace for some of these.
    "merge": _ArgumentRule(long=_GIT_OPTIONS, letters="s", valued="mFX"),
    "pull": _ArgumentRule(long=_GIT_OPTIONS, letters="s", valued="Xj"),
    "rebase": _ArgumentRule(long=_GIT_OPTIONS, letters="xs", valued="XC"),
}
_GIT_RULE = _ArgumentRule(long=_GIT_OPTIONS)
#: `ext::COMMAND` and its like: the address of a repository that names the program to reach it.
_GIT_TRANSPORT = re.compile(r"(?:^|=)[A-Za-z0-9][A-Za-z0-9+.-]*::|://-")
_GIT_SETTINGS = {
    "core.alternateRefsCommand": "true",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "gpg.program": "gpg",
    "gpg.ssh.program": "ssh-keygen",
    "gpg.x509.program": "gpgsm",
    "safe.bareRepository": "explicit",
    "submodule.recurse": "false",
}
_GIT_VARIABLES: Mapping[str, str] = {
    # Not file: git pushes to a repository on this machine, and fetches from one, without these variables, so that
    # its hooks and its configuration would start programs.
    "GIT_ALLOW_PROTOCOL": "git:http:https:ssh",
    "GIT_ASKPASS": "",
    "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_GIT_SETTINGS.values())},
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "GIT_PROXY_COMMAND": "",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_SSH_COMMAND": "ssh",
    "GIT_TERMINAL_PROMPT": "0",
}
_FIXED_VARIABLES: Mapping[str, Mapping[str, str]] = {
    "git": _GIT_VARIABLES,
    "npm": {
        # It starts git for a dependency that is in a repository.
        **_GIT_VARIABLES,
        "npm_config_browser": "false",
        "npm_config_editor": "false",
        "npm_config_git": "git",
        "npm_config_ignore_scripts": "true",
        "npm_config_node_options": "",
        "npm_config_script_shell": "/bin/sh",
        "npm_config_shell": "/bin/sh",
    },
    "cargo": {"RUSTC": "rustc", "RUSTC_WRAPPER": "", "RUSTC_WORKSPACE_WRAPPER": ""},
}


def _git_subcommand(words: Sequence[str]) -> int:
    """The place behind the options that git takes before its subcommand."""
    place = 1
    while place < len(words) and (words[place] in _GIT_GLOBALS or words[place] == "-C"):
        place += 2 if words[place] == "-C" else 1
    return place


def _git_folders(words: Sequence[str]) -> Sequence[int]:
    """The places of its option `-C`, which only counts before the subcommand."""
    start, place, found = _git_subcommand(words), 1, []
    while place < start:
        if words[place] == "-C":
            found.append(place)
            place += 1
        place += 1
    return found


def _git(words: Sequence[str]) -> int | None:
    start = _git_subcommand(words)
    if start >= len(words):
        return 0
    if (folders := _git_folders(words))[1:]:
        return folders[1]
    if words[start:] in (["--version"], ["-v"]):
        return None
    if words[start] not in _GIT_SUBCOMMANDS:
        return start
    rule = _GIT_RULES.get(words[start], _GIT_RULE)
    for place, word in enumerate(words[1:], 1):
        if (":" in word and _GIT_TRANSPORT.search(word)) or (place > start and rule.refuses_option(word)):
            return place
    return None


class _Subcommands(NamedTuple):
    """The subcommands of a package manager that run no code, and the options that may follow them.

    The subcommand is the first word, and the value of an option stands behind its `=`. So no word can be a value for
    the program and the subcommand for the check.
    """

    allowed: frozenset[str]
    flags: frozenset[str]
    #: Options with a value.
    valued: frozenset[str]
    #: Subcommands that run code unless a flag is given.
    only_with: frozenset[str] = frozenset()
    flag: str = ""

    def first_refused(self, words: Sequence[str]) -> int | None:
        """The place of the first word that is refused, 0 if the subcommand is missing, None if there is none."""
        if len(words) == 1:
            return 0
        if words[1:] in (["--version"], ["-v"], ["-V"]):
            return None
        if words[1] not in self.allowed and not (words[1] in self.only_with and words.count(self.flag) == 1):
            return 1
        return next((place for place in range(2, len(words)) if self._refuses(words[place - 1], words[place])), None)

    def _refuses(self, before: str, word: str) -> bool:
        if not word.startswith("-"):
            # Behind a flag they would be its value: `--ignore-scripts false`.
            return before.startswith("-") and word in ("true", "false")
        option, equals, _ = word.partition("=")
        return option not in (self.valued if equals else self.flags)


_NPM = _Subcommands(
    _words("ls list ll la view info show v outdated search s se find ping root prefix whoami explain why query"),
    _words(
        "--all -a --json --long -l --parseable -p --ignore-scripts --save -S --save-dev -D "
        "--save-exact -E --save-optional -O --save-prod -P --no-save --dry-run --no-audit --no-fund --production "
        "--silent -s --quiet -q --package-lock-only --no-package-lock"
    ),
    _words("--depth --omit --include --tag"),
    only_with=_words(
        "install i in add ci install-clean clean-install remove rm uninstall un unlink r update up upgrade dedupe prune"
    ),
    flag="--ignore-scripts",
)
#: The others build, or may start programs that `.cargo/config.toml` names.
_CARGO = _Subcommands(
    _words("locate-project read-manifest verify-project version"),
    _words("--quiet -q --verbose --offline --locked --frozen --workspace"),
    _words("--manifest-path --message-format"),
)
_PIP = _Subcommands(
    _words("list show freeze check inspect"),
    _words("--outdated -o --uptodate -u --user --local -l --verbose --quiet -q --files"),
    _words("--format"),
)


# Programs whose arguments are programs in a language of their own.

# GNU sed reads a `/` in brackets as a literal, and others do not: an expression with brackets is refused.
_SED_ADDRESS = r"(?:[0-9]++|\$|/(?:[^/\\\n\[]|\\[^\n])*+/)"
#: Locales exist in which such a character is the second half of one that is not ASCII.
_SED_UNCERTAIN = re.compile(r"[\\|@_]")
_SED_SCRIPT = ("-e", "--expression")
_SED_OPTIONS = _words(
    "-e --expression -n -E -r -s -z -u --quiet --silent --regexp-extended --null-data --separate --posix --sandbox"
)


@cache
def _sed_command() -> re.Pattern[str]:
    """A command of sed that neither runs a program nor reads or writes a file. No part of it is tried twice."""
    substitutions = "|".join(
        rf"s{mark}(?:[^{mark}\\\n\[]|\\[^\n])*+{mark}(?:[^{mark}\\\n]|\\[^\n])*+{mark}[gpiI0-9]*+"
        for mark in map(re.escape, "/|#,:@!%_")
    )
    addresses = rf"(?:{_SED_ADDRESS}(?:,{_SED_ADDRESS})?+)?+!?+"
    return re.compile(rf"[ \t;\n]*+{addresses}[ \t]*+(?:[pdqDPNnhHgGx=]|{substitutions})[ \t]*+(?:[;\n]|\Z)")


def _sed(words: Sequence[str]) -> int | None:
    scripts = _sed_scripts(words)
    others = set(range(1, len(words))).difference(scripts)
    for place in sorted(others):
        if words[place].startswith("-") and words[place] != "-" and words[place] not in _SED_OPTIONS:
            return place
    return next((place for place in scripts if not _is_harmless_sed(words[place])), None if scripts else 0)


def _sed_scripts(words: Sequence[str]) -> list[int]:
    """The words behind `-e`; without any, the first word that is no option."""
    named = [place for place in range(2, len(words)) if words[place - 1] in _SED_SCRIPT]
    operands = [place for place, word in enumerate(words) if place and not word.startswith("-")]
    return named or operands[:1]


def _is_harmless_sed(script: str) -> bool:
    if not script.isascii() and _SED_UNCERTAIN.search(script):
        return False
    at = 0
    while at < len(script):
        found = _sed_command().match(script, at)
        if found is None:
            return False
        at = found.end()
    return True


#: Parts of an awk program that run a program, or name a file.
_AWK_HARM = re.compile(r"system|getline|ARG[CV]|SYMTAB|@|>|(?<!\|)\|(?!\|)")


def _awk(words: Sequence[str]) -> int | None:
    scripts = _awk_scripts(words)
    if not scripts:
        return 0
    place = scripts[0]
    return place if words[place].startswith("-") or _AWK_HARM.search(words[place]) else None


def _awk_scripts(words: Sequence[str]) -> list[int]:
    """The first word that is neither a separator nor a variable."""
    place = 1
    while place < len(words) and words[place].startswith(("-F", "-v")):
        place += 2 if words[place] in ("-F", "-v") else 1
    return [place] if place < len(words) else []


#: The words of `node` that take code from the terminal.
_DEBUGGERS = ("inspect", "debug")


def _interpreter(words: Sequence[str]) -> int | None:
    """An interpreter may run a file, and nothing else: its options name code, and without a file it reads code."""
    if len(words) == 1:
        return 0
    if words[1:] in (["--version"], ["-V"], ["-v"]):
        return None
    return 1 if words[1].startswith("-") or words[1] in _DEBUGGERS else None


def _tar(words: Sequence[str]) -> int | None:
    """The first word of tar may be letters without a hyphen, and the archive may lie on another machine."""
    remote = next((place for place, word in enumerate(words) if place and ":" in word), None)
    if len(words) > 1 and not words[1].startswith("-") and not _OLD_TAR_LETTERS.isdisjoint(words[1]):
        return 1
    return remote


def _curl(words: Sequence[str]) -> int | None:
    """The text that `curl` prints at the end may name files to write."""
    return next((place for place, word in enumerate(words) if place and "%output{" in word), None)


def _diff(words: Sequence[str]) -> int | None:
    """With folders `diff` follows links unless its first word says otherwise."""
    if words[1:2] == ["--no-dereference"]:
        return None
    return next((place for place, word in enumerate(words) if place and _DIFF_FOLDERS.refuses_option(word)), None)


def _zip(words: Sequence[str]) -> int | None:
    """With folders `zip` follows links unless the letter `y` stands beside that of folders."""
    folders = [place for place, word in enumerate(words) if place and _ZIP_FOLDERS.refuses_option(word)]
    return next((place for place in folders if not _ZIP_LINKS.fullmatch(words[place])), None)


def _openssl(words: Sequence[str]) -> int | None:
    """Engines, providers and settings load code; without a subcommand it reads some."""
    if len(words) == 1:
        return 0
    return next((place for place, word in enumerate(words) if place and word.lstrip("-") in _OPENSSL_CODE), None)


def _second_operand(words: Sequence[str]) -> int | None:
    """The second file of `uniq` is the one that it writes."""
    operands = [place for place, word in enumerate(words) if place and (not word.startswith("-") or word == "-")]
    return operands[1] if len(operands) > 1 else None


def _make_variable(words: Sequence[str]) -> int | None:
    """`make SHELL=…` names the program that runs its recipes."""
    return next((place for place, word in enumerate(words) if place and "=" in word and not word.startswith("-")), None)


_TAR_LETTERS = frozenset("IFPTh")
#: Without a hyphen the values of letters stand further on, in their order.
_OLD_TAR_LETTERS = _TAR_LETTERS | {"C"}
_TAR = _ArgumentRule(
    long=_long(
        "to-command checkpoint-action use-compress-program info-script new-volume-script rsh-command rmt-command "
        "absolute-names files-from remove-files dereference keep-directory-symlink"
    ),
    letters="".join(sorted(_TAR_LETTERS)),
    check=_tar,
    folder=_FolderOption(("--directory", "--cd"), "C"),
)
#: The letters of other options may have a value behind them.
_ZIP_LINKS = re.compile("-(?=.*y)[ryRq0-9v]*")
_ZIP_FOLDERS = _ArgumentRule(long=_long("recurse-paths recurse-patterns"), letters="rR")
_DIFF_FOLDERS = _ArgumentRule(long=_long("recursive"), letters="r", valued="CFIDLSUWxX")
_OPENSSL_CODE = _words("engine provider provider-path provider_path config ssl_client_engine")
_GREP = _ArgumentRule(long=_long("dereference-recursive"), letters="R", valued="efmABCdD")
_FIND = _ArgumentRule(
    words=_words("-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from -follow -L")
)
_FD = _ArgumentRule(
    long=_long("exec exec-batch follow"), letters="xXL", folder=_FolderOption(("--base-directory",), "C")
)
_SED = _ArgumentRule(check=_sed, scripts=_sed_scripts)
_AWK = _ArgumentRule(check=_awk, scripts=_awk_scripts)
_INTERPRETER = _ArgumentRule(check=_interpreter)
_RULES: dict[str, _ArgumentRule] = {
    "git": _ArgumentRule(check=_git),
    "npm": _ArgumentRule(check=_NPM.first_refused),
    "cargo": _ArgumentRule(check=_CARGO.first_refused),
    "pip": _ArgumentRule(check=_PIP.first_refused),
    # With the options that follow links, these would read what no word names.
    "find": _FIND,
    "bfs": _FIND,
    "ls": _ArgumentRule(long=_long("dereference"), letters="L", valued="ITw"),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "wc": _ArgumentRule(long=_long("files0-from")),
    "du": _ArgumentRule(long=_long("files0-from dereference"), letters="L", valued="BdtX"),
    "fd": _FD,
    "fdfind": _FD,
    "rg": _ArgumentRule(long=_long("pre hostname-bin follow search-zip"), letters="Lz", valued="efgmABCtTEjMr"),
    "ag": _ArgumentRule(long=_long("pager follow"), letters="f"),
    "ack": _ArgumentRule(long=_long("pager follow ackrc")),
    "sort": _ArgumentRule(
        long=_long("output compress-program temporary-directory files0-from"), letters="oT", valued="ktS"
    ),
    "shuf": _ArgumentRule(long=_long("output"), letters="o", valued="in"),
    "uniq": _ArgumentRule(check=_second_operand),
    "split": _ArgumentRule(long=_long("filter")),
    "date": _ArgumentRule(long=_long("set"), letters="s", valued="dfr"),
    "tar": _TAR,
    "gtar": _TAR,
    "bsdtar": _TAR,
    # It copies the files that its input names, and writes those that an archive names, absolute ones too.
    "cpio": _ArgumentRule(
        long=_long("rsh-command file create pass-through extract"),
        letters="FOopi",
        folder=_FolderOption(("--directory",), "D"),
    ),
    "zip": _ArgumentRule(long=_long("unzip-command test names-stdin move"), letters="T@m", check=_zip),
    "unzip": _ArgumentRule(letters=":"),
    "cp": _ArgumentRule(long=_long("dereference"), letters="L", valued="tS"),
    "diff": _ArgumentRule(check=_diff),
    "gpg": _ArgumentRule(
        long=_long("photo-viewer exec-path agent-program dirmngr-program keyboxd-program homedir options")
    ),
    "tree": _ArgumentRule(letters="l"),
    "file": _ArgumentRule(long=_long("files-from"), letters="f", valued="mFeP"),
    "install": _ArgumentRule(long=_long("strip-program")),
    "openssl": _ArgumentRule(check=_openssl),
    "xz": _ArgumentRule(long=_long("files files0")),
    "patch": _ArgumentRule(
        long=_long("ed"), letters="e", valued="BdDFgiopprVYz", folder=_FolderOption(("--directory",), "d")
    ),
    "curl": _ArgumentRule(
        long=_long("config engine libcurl unix-socket abstract-unix-socket proto-default"),
        letters="K",
        check=_curl,
        folder=_FolderOption(("--output-dir",), other="--output"),
    ),
    "wget": _ArgumentRule(long=_long("execute use-askpass config"), letters="e", valued="OPoaUBTtwQlARDXI"),
    "rsync": _ArgumentRule(
        long=_long(
            "rsh rsync-path daemon remote-option config copy-links copy-unsafe-links copy-dirlinks keep-dirlinks"
        ),
        letters="eMLkK",
    ),
    "ssh": _ArgumentRule(letters="oFSEILRDWw"),
    "scp": _ArgumentRule(letters="oFSD"),
    "sftp": _ArgumentRule(letters="oFSDb"),
    "make": _ArgumentRule(
        long=_long("eval"), letters="E", check=_make_variable, folder=_FolderOption(("--directory",), "C")
    ),
    "ninja": _ArgumentRule(folder=_FolderOption((), "C")),
    "sed": _SED,
    "gsed": _SED,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _AWK),
    **dict.fromkeys(
        _words(
            "python pypy perl ruby node nodejs php lua luajit Rscript tclsh wish guile irb julia micropython jruby "
            "escript elixir ocaml racket sbcl clisp octave groovy runghc runhaskell"
        ),
        _INTERPRETER,
    ),
}
