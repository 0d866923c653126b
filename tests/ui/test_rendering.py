"""Templates are compiled where that holds up nobody."""

import threading

import jinja2
import pytest

from gnomon.ui.rendering import environment
from support.dashboard import DashboardFixture


async def test_no_template_is_compiled_on_the_event_loop(
    dashboard: DashboardFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.cache_clear()
    compiled, compile_template = list[str](), jinja2.Environment._generate  # noqa: SLF001 - the part that takes long

    def recorded(*given: object, **named: object) -> str:
        compiled.append(threading.current_thread().name)
        return compile_template(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(jinja2.Environment, "_generate", recorded)
    async with dashboard.visitor("admin") as visitor:
        for path in ("/ui/", "/ui/jobs/report", "/ui/executions", "/ui/policy"):
            assert (await visitor.get(path)).status_code == 200

    assert len(compiled) > 30
    assert threading.current_thread().name not in compiled
