"""The rules of `secrets.allow`: which jobs may use a secret."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gnomon.errors import FieldError

#: Stands for every tenant, or for every job of a tenant.
_ANY = "*"
_DEFAULT_TENANT = "default"
_RULE = re.compile(r"([^=\s]+)(?:=([a-z0-9][a-z0-9._-]*|\*)(?:/([^/\s]+))?)?")


class SecretRule(NamedTuple):
    """A secret, and who may use it: a tenant and a job, each of which may be `*`."""

    name: str
    tenant: str = _DEFAULT_TENANT
    job: str = _ANY

    def admits(self, tenant: str, job: str) -> bool:
        """Whether that job may use the secret."""
        return self.tenant in (_ANY, tenant) and self.job in (_ANY, job)


def read_secret_rules(allow: Sequence[str]) -> tuple[SecretRule, ...]:
    """The rules as written: `NAME`, `NAME=TENANT` or `NAME=TENANT/JOB`; raise FieldError for any other form."""
    return tuple(map(_read_rule, allow))


def _read_rule(text: str) -> SecretRule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise FieldError("secrets.allow", text, "must be NAME, NAME=TENANT or NAME=TENANT/JOB")
    return SecretRule(found[1], found[2] or _DEFAULT_TENANT, found[3] or _ANY)
