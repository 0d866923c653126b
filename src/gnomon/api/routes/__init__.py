"""All routes of the API: one module per resource, each with a table of its routes."""

from gnomon.api.route import ApiRoute
from gnomon.api.routes import (
    agent_sessions,
    agents,
    announcements,
    audit,
    backfills,
    breakers,
    bulk_jobs,
    events,
    executions,
    jobs,
    models,
    policy,
    policy_shadow,
    schedules,
    system,
    tick_exceptions,
    tokens,
    why,
)

ROUTES: tuple[ApiRoute, ...] = (
    *jobs.ROUTES,
    *tick_exceptions.ROUTES,
    *bulk_jobs.ROUTES,
    *backfills.ROUTES,
    *executions.ROUTES,
    *announcements.ROUTES,
    *breakers.ROUTES,
    *agents.ROUTES,
    *agent_sessions.ROUTES,
    *schedules.ROUTES,
    *events.ROUTES,
    *system.ROUTES,
    *why.ROUTES,
    *audit.ROUTES,
    *tokens.ROUTES,
    *models.ROUTES,
    *policy.ROUTES,
    *policy_shadow.ROUTES,
)
