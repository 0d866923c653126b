"""All routes of the API: one module per resource, each with a table of its routes."""

from gnomon.api.route import ApiRoute
from gnomon.api.routes import audit, backfills, executions, jobs, schedules, system, why

ROUTES: tuple[ApiRoute, ...] = (
    *jobs.JOB_ROUTES,
    *jobs.TICK_ROUTES,
    *jobs.BULK_ROUTES,
    *backfills.ROUTES,
    *executions.ROUTES,
    *schedules.ROUTES,
    *system.ROUTES,
    *why.ROUTES,
    *audit.ROUTES,
)
