"""The programs that a policy knows by name: the default ones, those that start others, and how risky each is."""

import re
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise

from gnomon.core.commands.arguments import has_rule, program_name, subcommand


class Risk(StrEnum):
    """How much harm a command can do."""

    LOW = "low"
    #: It changes files, repositories or installed packages.
    MEDIUM = "medium"
    #: It deletes files, changes the system, or connects to other machines.
    HIGH = "high"


#: The programs that a guarded command may start by default.
DEFAULT_PROGRAMS = tuple("git npm cargo ls cat grep find echo pwd wc head tail".split())
#: Programs that start others, so that their words are commands themselves. No list can allow them.
STARTERS = frozenset(
    (
        "env xargs parallel sh bash dash ash zsh ksh mksh oksh yash fish csh tcsh rbash pwsh elvish nu busybox toybox "
        "sudo su doas runuser setpriv pkexec sg newgrp nohup setsid time timeout nice ionice chrt taskset numactl "
        "stdbuf unbuffer script watch entr watchexec strace ltrace gdb lldb valgrind perf exec eval command builtin "
        "source chroot unshare nsenter bwrap firejail systemd-run crontab at batch start-stop-daemon daemonize "
        "run-parts screen tmux dtach expect socat flock fakeroot faketime proot dbus-run-session dbus-launch ssh-agent "
        "xvfb-run runcon prlimit setarch linux32 linux64 x86_64 i386 uname26 catchsegv rlwrap torsocks torify "
        "proxychains tsocks cgexec capsh choom coproc npx uvx bunx pnpx pipx hyperfine multitime chpst softlimit "
        "envdir envuidgid setuidgid s6-setuidgid chronic ifne pee vi vim nvim view ex ed emacs nano pico less more "
        "most pg man info mc lynx w3m links elinks xterm trap alias coreutils pseudo gosu su-exec tini dumb-init "
        "openvt ts-node tsx yarn pnpm corepack rustup volta asdf mise pyenv rbenv nodenv direnv nix-shell nix guix "
        "deno bun R ipython bpython uv poetry pipenv conda mamba micromamba bundle sudoedit sudo-rs su-rs run0 sshpass "
        "autossh mosh systemd-nspawn systemd-inhibit systemd-cat machinectl schroot fakechroot lxc-attach lxc-execute "
        "apptainer singularity distrobox toolbox flatpak eatmydata cpulimit bpftrace rr posh xonsh lksh osh ysh rksh "
        "pdksh scsh sash rvim rview vimdiff gvim emacsclient jed joe mg nvi kak hx micro inetd xinetd tcpserver ldd"
    ).split()
)
#: One file with many programs, which knows by the first word which of them it is.
_MANY_PROGRAMS = frozenset(("busybox", "toybox", "coreutils"))
#: The loader of programs, which runs the program that it is given.
_LOADER = re.compile(r"ld(-linux.*|-musl.*)?\.so.*")
#: The end of the name of a file that is a version or a variant, as in `python3.11`, `bash-static` and `vim.tiny`.
_VARIANT = re.compile(
    r"(?<=.)(?:[-.]?[0-9][0-9.]*(?:dm|[dmtu])?"
    "|[-.](?:static|dbg|debug|real|tiny|basic|minimal|full|huge|nox|gtk[23]?|athena|orig|distrib|bin|stable|posix"
    "|traditional|openbsd|gnu|uutils|restricted))$"
)

#: These begin with a `g`, and are no GNU variants of `pg` and `zip`.
_NO_VARIANTS = frozenset(("gpg", "gzip"))

_HIGH = frozenset(
    (
        "rm mkfs dd shutdown reboot halt poweroff sudo su chown chmod useradd userdel usermod passwd mount umount "
        "iptables ufw firewall-cmd curl wget nc ncat netcat scp ssh ftp telnet "
        "rmdir shred wipefs fdisk parted mkswap swapon swapoff sftp rsync docker podman nerdctl kubectl systemctl "
        "kill pkill killall insmod rmmod modprobe sysctl ip nft chgrp setfacl visudo groupadd groupdel unlink"
    ).split()
)
_MEDIUM = frozenset("touch mkdir mv cp ln tee truncate install patch".split())
#: Programs that read all of the folder where they run unless a word names another one: how many words without a hyphen
#: they then have, and the letters of options whose value may be the next word.
_FOLDER_READERS = {
    **dict.fromkeys(("find", "bfs"), (1, "")),
    **dict.fromkeys(("du", "tree", "ls"), (1, "BdtXILoPTw")),
    **dict.fromkeys(("grep", "egrep", "fgrep"), (2, "efmABCdD")),
    **dict.fromkeys(("rg", "ag", "ack", "fd", "fdfind"), (2, "efgmABCtTEjMrdDSG")),
}
#: The letters with which the others do so.
_RECURSIVE = {"grep": "rd", "egrep": "rd", "fgrep": "rd", "ls": "R"}
#: These change something, or connect to another machine, whose address may be one in the network of this one.
_MEDIUM_SUBCOMMANDS = {
    "git": frozenset(
        (
            "commit push reset clean rebase merge cherry-pick revert branch checkout switch tag "
            "restore rm mv pull stash apply gc symbolic-ref clone fetch ls-remote"
        ).split()
    ),
    "npm": frozenset(
        (
            "install i in add ci install-clean clean-install remove rm uninstall un unlink r update up upgrade "
            "publish dedupe prune view info show v outdated search s se find ping whoami"
        ).split()
    ),
    "cargo": frozenset("add remove rm install clean publish update generate-lockfile fetch yank".split()),
}


def program_names(written: str, resolved: str) -> frozenset[str]:
    """The names of a program in the tables: as it was written, as its file is called, and both without a variant."""
    if len(written) + len(resolved) > _LONGEST_REMEMBERED:
        return _names(written, resolved)
    return _remembered_names(written, resolved)


def _names(written: str, resolved: str) -> frozenset[str]:
    found = {program_name(written), program_name(resolved)}
    if len(found) > 1:
        # A link to a variant, such as `vim.basic`.
        found.add(program_name(resolved).partition(".")[0])
    if len(found) > 1:
        # The name as it was written is then one of the programs in that file.
        found -= _MANY_PROGRAMS - {program_name(written)}
    return frozenset(one for name in found for one in _general_names(name))


#: Commands start the same few programs again and again.
_remembered_names = lru_cache(maxsize=512)(_names)
_LONGEST_REMEMBERED = 512


def _general_names(name: str) -> Iterator[str]:
    """The name, without its version and variant, and without the `g` of the GNU programs on other systems."""
    yield name
    general = _VARIANT.sub("", name)
    while general != name:
        yield general
        name, general = general, _VARIANT.sub("", general)
    if name.startswith("g") and name not in _NO_VARIANTS and _is_in_tables(name[1:]):
        yield name[1:]


def _is_in_tables(name: str) -> bool:
    return name in STARTERS or name in _HIGH or name in _MEDIUM or has_rule(name)


def starts_others(names: Collection[str]) -> bool:
    """Whether one of the names is that of a program that starts others."""
    if not STARTERS.isdisjoint(names):
        return True
    return any(name.startswith("ld") and _LOADER.fullmatch(name) for name in names)


def programs_of_risk(risk: Risk) -> list[str]:
    """The programs that have this risk, some of them only with a subcommand."""
    if risk is Risk.HIGH:
        return sorted(_HIGH)
    if risk is Risk.LOW:
        return []
    return sorted(_MEDIUM) + [f"{name} {verb}" for name, verbs in _MEDIUM_SUBCOMMANDS.items() for verb in sorted(verbs)]


def risk_of(names: Collection[str], words: Sequence[str]) -> Risk:
    """The risk of a program with these names and words."""
    if not _HIGH.isdisjoint(names) or any(name.startswith("mkfs.") for name in names):
        return Risk.HIGH
    if not _MEDIUM.isdisjoint(names):
        return Risk.MEDIUM
    given = [(name, subcommand(name, words)) for name in names if name in _MEDIUM_SUBCOMMANDS]
    is_medium = any(verb in _MEDIUM_SUBCOMMANDS[name] for name, verb in given)
    return Risk.MEDIUM if is_medium or _connects(names, words) else Risk.LOW


def reads_folder(names: Collection[str], words: Sequence[str]) -> bool:
    """Whether a program may read everything in the folder where it runs, although no word names that."""
    for name in names:
        needed, valued = _FOLDER_READERS.get(name, (0, ""))
        letters = _RECURSIVE.get(name)
        recurses = letters is None or any(_is_option_with(word, letters) for word in words[1:])
        if recurses and _operands(words, valued, before_options=name in ("find", "bfs")) < needed:
            return True
    return False


def _is_option_with(word: str, letters: str) -> bool:
    if word.startswith("--"):
        return word.startswith(("--d", "--r"))
    return word.startswith("-") and any(letter in word for letter in letters)


def _operands(words: Sequence[str], valued: str, *, before_options: bool) -> int:
    """The number of words that are neither options nor could be the value of one, perhaps only those in front."""
    count = 0
    for before, word in pairwise(words):
        if word.startswith("-") or (before_options and word in ("!", "(")):
            if before_options:
                break
        elif not _takes_next(before, valued):
            count += 1
    return count


def _takes_next(option: str, valued: str) -> bool:
    if option.startswith("--"):
        return len(option) > len("--") and "=" not in option
    return option.startswith("-") and option[-1] in valued


def _connects(names: Collection[str], words: Sequence[str]) -> bool:
    """Whether a subcommand that is else harmless gets a word with which it changes or asks a server."""
    if "git" in names and subcommand("git", words) == "remote":
        return any(not word.startswith("-") for word in words[list(words).index("remote", 1) + 1 :])
    return "pip" in names and any(word in ("--outdated", "-o", "--uptodate", "-u") for word in words)
