"""The variables that a guarded command may set for its programs.

Hundreds of variables make one program or another load code, start a program, or read another file, and no list of them
is complete. So the names are listed that no program reads but those that a user wrote, and a few that are known to be
harmless.
"""

import re
from functools import lru_cache

#: Variables that programs read, and that only change what they print, or to which database they connect. LANGUAGE is
#: not among them: it is a path from a folder of the system, and with `..` one to translations that a command has made.
_KNOWN = frozenset(
    "CI COLUMNS LANG LINES NO_COLOR SOURCE_DATE_EPOCH TERM TZ PGDATABASE PGHOST PGPASSWORD PGPORT PGUSER".split()
)
_LOCALE = re.compile("LC_[A-Z]+")
#: POSIX leaves names in lower case to applications: its own utilities read none of them. These few programs do.
_LOWER = re.compile("(?!npm_|yarn_|pnpm_|pip_|ac_|.*_proxy$)[a-z][a-z0-9_]{0,127}")
#: Beginnings and ends of names that users choose.
_OWN = re.compile(
    r"(?:JOB|MY|INPUT|PARAM|VAR)_[A-Z0-9_]{1,120}|(?!GIT_|LD_|SSH_|GNOMON_)[A-Z][A-Z0-9_]{0,120}_(?:TOKEN|PASSWORD|SECRET)"
)
#: Words of which users make names, alone or with `_` between them. No program reads such a name.
_WORDS = frozenset(
    "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z"
    " AMOUNT BRANCH BUCKET CITY COUNT COUNTRY CUSTOMER DATABASE DATE DAY DB DOMAIN EMAIL END ENDPOINT FILE FOLDER FROM"
    " GREETING GROUP HOST HOUR ID INDEX INPUT ITEM JOB KEY LABEL LEVEL LIMIT LINE LIST MAIL MESSAGE MINUTE MODE MONTH"
    " NAME NUMBER OFFSET ORDER OUT OUTPUT OWNER PAGE PART PASSWORD PATTERN PORT PROJECT QUERY RATE REGION REPORT RESULT"
    " ROW ROWS RUN SECRET SIZE SOURCE START STATUS STEP SUBJECT SUM TABLE TAG TARGET TEAM TENANT TEXT TIME TITLE TO"
    " TODAY TOKEN TOTAL TYPE UNTIL URL USERNAME VALUE VERSION WEEK WHEN WHERE WHO WORD YEAR ZONE".split()
)


def is_harmless(name: str) -> bool:
    """Whether a command may set this variable. The value of one that programs read must still not be a path."""
    return _is_harmless(name) if len(name) > _LONGEST_REMEMBERED else _remembered_is_harmless(name)


def _is_harmless(name: str) -> bool:
    if is_read_by_programs(name) or _LOWER.fullmatch(name) or _OWN.fullmatch(name):
        return True
    return all(word in _WORDS or word.isdecimal() for word in name.split("_"))


#: The names of the variables of a job are checked with each of its commands.
_remembered_is_harmless = lru_cache(maxsize=1024)(_is_harmless)
_LONGEST_REMEMBERED = 128


def is_read_by_programs(name: str) -> bool:
    """Whether programs of the system read this harmless variable, some of them as the name of a file."""
    return name in _KNOWN or (name.startswith("LC_") and _LOCALE.fullmatch(name) is not None)
