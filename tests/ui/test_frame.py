"""The frame of every page: its installation, menu, zone, theme, search and static files."""

import re
from itertools import pairwise

import pytest

from gnomon.config.sections import DashboardColour, DashboardSettings
from gnomon.config.settings import load
from gnomon.errors import FieldError
from gnomon.ui.menu import GROUPS, menu_path
from gnomon.ui.pages import PAGES
from gnomon.ui.rendering import static_files
from gnomon.ui.view import ReaderView
from support.dashboard import DashboardFixture, text_of

# ---- which installation this is ------------------------------------------------------------------


async def test_every_page_names_its_installation(dashboard: DashboardFixture) -> None:
    dashboard.ui = DashboardSettings(title="Shop <staging>", colour=DashboardColour.RED)
    dashboard.put(dashboard.services)

    async with dashboard.visitor("viewer") as visitor:
        page = (await visitor.get("/ui/jobs")).text

    assert "<title>Jobs · Shop &lt;staging&gt;</title>" in page
    assert '<header class="top colour-red">' in page


@pytest.mark.parametrize("title", ["", "  ", "x" * 61, "two\nlines", "a\u202eb"])
def test_a_title_that_would_not_fit_is_refused_by_name(title: str) -> None:
    with pytest.raises(FieldError, match=r"ui\.title"):
        load(flags={"ui.title": title})


def test_a_colour_is_one_of_those_on_which_text_can_be_read() -> None:
    with pytest.raises(FieldError, match=r"ui\.colour"):
        load(flags={"ui.colour": "#ff0000"})


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2.1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def style_sheet() -> str:
    return next(content.decode() for kind, content in static_files().values() if kind == "text/css")


def test_white_text_has_contrast_on_every_colour_of_an_installation() -> None:
    colours = dict(re.findall(r"\.colour-(\w+) \{ --installation: (#\w{6}); \}", style_sheet()))

    assert set(colours) == {colour.value for colour in DashboardColour} - {"none"}
    assert all(contrast(colour, "#ffffff") >= 4.5 for colour in colours.values()), colours


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("ground", ["ground", "raised", "sunken"])
def test_every_text_has_contrast_on_its_ground_in_both_themes(theme: int, ground: str) -> None:
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", style_sheet())
    colours = {name: (light, dark)[theme] for name, light, dark in pairs}

    for ink in ("ink", "quiet", "accent", "good", "bad", "warn"):
        assert contrast(colours[ink], colours[ground]) >= 4.5, ink
        own = colours.get(f"{ink}-ground")
        assert own is None or contrast(colours[ink], own) >= 4.5, ink
    assert contrast(colours["edge"], colours[ground]) >= 3, "the borders of fields"


# ---- the menu ------------------------------------------------------------------------------------


def test_the_menu_has_a_place_for_every_page() -> None:
    places = [path for _, paths in GROUPS for path in paths]

    assert {page.path for page in PAGES if page.in_menu} <= set(places)
    assert len(places) == len(set(places))


async def test_the_menu_shows_the_pages_that_the_caller_may_read(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as viewer, dashboard.visitor("admin") as admin:
        assert 'href="/ui/audit"' not in (await viewer.get("/ui/")).text
        assert 'href="/ui/audit"' in (await admin.get("/ui/")).text


@pytest.mark.parametrize(
    ("path", "place"),
    [("/ui/", "/ui/"), ("/ui/jobs/a", "/ui/jobs"), ("/ui/jobs", "/ui/jobs"), ("/ui/search", "/ui/"), ("/x", "")],
)
def test_a_page_belongs_to_a_place_in_the_menu(path: str, place: str) -> None:
    assert menu_path(path) == place


# ---- zone and theme ------------------------------------------------------------------------------


async def test_a_reader_chooses_zone_and_theme_and_they_stay(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as visitor:
        assert "09:00:00 UTC" in text_of(await visitor.get("/ui/jobs"))

        wanted = {"zone": "mine", "own_zone": "Asia/Kolkata", "theme": "dark", "next": "/ui/jobs?tag=numbers"}
        answer = await visitor.send("/ui/view", **wanted)
        page = await visitor.get("/ui/jobs")

    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/jobs?tag=numbers")
    assert {"httponly", "samesite=lax"} <= {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
    assert "14:30:00 IST" in text_of(page)
    assert '<html lang="en" data-theme="dark">' in page.text


@pytest.mark.parametrize(
    "wanted",
    [{"zone": "mars"}, {"zone": "mine", "own_zone": "../etc/passwd"}, {"theme": "<b>"}, {"zone": "mine"}],
)
async def test_a_zone_or_theme_that_is_not_known_changes_nothing(
    dashboard: DashboardFixture, wanted: dict[str, str]
) -> None:
    async with dashboard.visitor("viewer") as visitor:
        answer = await visitor.send("/ui/view", **wanted)

    assert answer.status_code == 422
    assert "set-cookie" not in answer.headers


async def test_the_view_of_another_session_cannot_be_changed(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as visitor:
        assert (await visitor.send("/ui/view", token="0" * 64, theme="dark")).status_code == 403


@pytest.mark.parametrize("cookie", ["", "dark", "dark.mine", "dark.mine.Mars~Base", "odd.utc.", "x" * 5000, "...."])
def test_a_cookie_that_keeps_no_view_is_ignored(cookie: str) -> None:
    assert ReaderView.from_cookie(cookie) == ReaderView()


def test_a_view_survives_its_cookie() -> None:
    view = ReaderView(theme="light", zone_choice="mine", own_zone="America/Argentina/Buenos_Aires")

    assert ReaderView.from_cookie(view.as_cookie()) == view


def test_moments_of_a_job_are_in_its_zone_only_if_the_reader_wants_that() -> None:
    assert ReaderView(zone_choice="job").zone_for("Asia/Tokyo") == "Asia/Tokyo"
    assert ReaderView(zone_choice="job").zone == "UTC"
    assert ReaderView(zone_choice="mine", own_zone="Asia/Kolkata").zone_for("Asia/Tokyo") == "Asia/Kolkata"


# ---- search --------------------------------------------------------------------------------------


async def test_the_search_finds_pages_and_executions(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        execution = await admin.triggered()

    async with dashboard.visitor("viewer") as visitor:
        assert 'href="/ui/dead-letters"' in (await visitor.get("/ui/search?q=DEAD&part=found")).text
        found = (await visitor.get(f"/ui/search?q={execution}&part=found")).text
        assert f'href="/ui/executions/{execution}"' in found
        assert "of report" in found
        assert "Nothing has that name." in (await visitor.get("/ui/search?q=zzz")).text
        assert 'href="/ui/audit"' not in (await visitor.get("/ui/search?q=audit&part=found")).text


async def test_the_search_of_another_tenant_finds_nothing(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        execution = await admin.triggered()

    async with dashboard.visitor("admin/other") as visitor:
        assert "Nothing has that name." in (await visitor.get(f"/ui/search?q={execution}")).text


@pytest.mark.parametrize("text", ["%", "run_%2F..%2F", "%00", "x" * 3000, "run_" + "y" * 3000, "%3Cscript%3E"])
async def test_a_search_for_an_odd_text_is_answered(dashboard: DashboardFixture, text: str) -> None:
    async with dashboard.visitor("viewer") as visitor:
        answer = await visitor.get(f"/ui/search?q={text}")

    assert answer.status_code == 200
    assert "<script>" not in answer.text


# ---- static files --------------------------------------------------------------------------------


def test_the_module_is_small() -> None:
    [size] = [len(content) for kind, content in static_files().values() if kind == "text/javascript"]

    assert size <= 15_000


def test_no_style_is_asked_for_elsewhere() -> None:
    assert "url(" not in style_sheet()
    assert "@import" not in style_sheet()


async def test_headings_do_not_skip_a_level(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as visitor:
        for path in ("/ui/", "/ui/jobs/report", "/ui/health"):
            main = (await visitor.get(path)).text.partition("<main")[2].partition("</main>")[0]
            levels = [int(level) for level in re.findall(r"<h(\d)", main)]
            assert levels[0] == 1
            assert all(after <= before + 1 for before, after in pairwise(levels)), path
