"""Requests for schedules: the words of other schedulers beside ours."""

import pytest

from gnomon.core.jobs.schedule_fields import Defaults, read_schedule_request
from gnomon.errors import FieldError


def test_a_field_said_under_two_names_is_refused() -> None:
    request = {"workflow_id": "invoice", "schedule": "@daily", "cron_expr": "@hourly"}

    with pytest.raises(FieldError, match="sets schedule a second time") as refused:
        read_schedule_request(request, Defaults(), now=0)

    assert refused.value.field == "cron_expr"
