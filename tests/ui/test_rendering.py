"""Templates are compiled where that holds up nobody."""

import threading

import jinja2
import pytest

from gnomon.ui.rendering import environment, sentence_html
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


def test_characters_that_no_one_sees_are_replaced_in_every_text_but_a_field_that_is_sent_back() -> None:
    template = environment().from_string('{{ one }}|<a title="{{ one }}">|{{ one | exact }}|{{ 1 }}')

    assert template.render(one="a\u202e<b>\x1b\n\u200d") == (
        'a\ufffd&lt;b&gt;\ufffd\n\ufffd|<a title="a\ufffd&lt;b&gt;\ufffd\n\ufffd">|a\u202e&lt;b&gt;\x1b\n\u200d|1'
    )


def test_a_sentence_stays_as_it_is_with_links_to_its_executions() -> None:
    run = f"run_{'0a' * 22}"
    html = sentence_html(f"<i>\u202e It ran as {run}, not run_1.")

    assert str(html) == (
        f'&lt;i&gt;\ufffd It ran as <a class="id short" href="/ui/executions/{run}" title="{run}">{run}</a>, not run_1.'
    )
