"""The revisions of jobs."""

from msgspec import Struct

from gnomon.api.examples import REVISION
from gnomon.api.requests import CursorNumber, make_page, read_cursor
from gnomon.api.route import LIST_DEFAULTS, ApiCall, ApiRoute, Cursor, Limit, Reply
from gnomon.core.responses.base import Page
from gnomon.core.responses.revisions import JobRevision
from gnomon.services.operations.presenters.revisions import job_revision


class RevisionsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of revisions."""

    limit: Limit = 20
    cursor: Cursor | None = None


async def list_revisions(call: ApiCall) -> Reply:
    """List the revisions of a job, newest first, each with its definition and how it differs from the one before."""
    query: RevisionsQuery = call.query
    found = await call.services.revisions.page(
        call.path["name"], before=await read_cursor(call, CursorNumber), limit=query.limit, tenant=call.tenant
    )
    return Reply(body=await make_page(call, job_revision, found.items, found.before))


ROUTES = (
    ApiRoute(
        path="/v1/jobs/{name}/revisions",
        name="list_revisions",
        handle=list_revisions,
        query=RevisionsQuery,
        answer=Page[JobRevision],
        error_statuses=(404,),
        example={"items": [REVISION], "next": None},
        **LIST_DEFAULTS,
    ),
)
