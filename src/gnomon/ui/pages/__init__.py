"""The pages and forms of the dashboard: a module per subject. `PAGES` is in the order of the menu."""

from gnomon.ui.pages import approvals, audit, dead_letters, executions, health, jobs, overview, schedule, why, workers
from gnomon.ui.pages.page import DashboardForm, DashboardPage

PAGES: tuple[DashboardPage, ...] = (
    *overview.PAGES,
    *schedule.PAGES,
    *jobs.PAGES,
    *executions.PAGES,
    *why.PAGES,
    *dead_letters.PAGES,
    *approvals.PAGES,
    *workers.PAGES,
    *health.PAGES,
    *audit.PAGES,
)
FORMS: tuple[DashboardForm, ...] = (
    *jobs.FORMS,
    *executions.FORMS,
    *dead_letters.FORMS,
    *approvals.FORMS,
)
