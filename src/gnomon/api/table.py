"""Everything that can be asked for. Whoever adds a route adds it to one of these tables, or adds a table."""

from gnomon.api import audit, backfills, bulk, executions, jobs, others, schedules, single_ticks, why
from gnomon.api.routes import Route

ROUTES: tuple[Route, ...] = (
    *jobs.ROUTES,
    *single_ticks.ROUTES,
    *bulk.ROUTES,
    *backfills.ROUTES,
    *executions.ROUTES,
    *schedules.ROUTES,
    *others.ROUTES,
    *why.ROUTES,
    *audit.ROUTES,
)
