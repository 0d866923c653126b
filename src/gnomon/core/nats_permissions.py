"""The permissions of the users of NATS: each may do what it needs and nothing else.

`deploy/nats/nats.conf` has the same list for servers; a test compares them.

Enrolled workers have an account of their own, apart from that of servers and streams. JetStream publishes its answers
on whatever subject a request names, with the rights of its account: in the same account a worker could make it delete
streams. Each account offers the other one a few services, and NATS replaces the reply subject of every request.
"""

from msgspec import Struct

from gnomon.core import subjects
from gnomon.core.worker_ids import checked_identity

#: The inboxes of servers, and the prefix of the inboxes of workers, to which servers reply.
SERVER_INBOX, WORKER_INBOX = "_INBOX_scheduler", "_INBOX_worker"
#: The prefix of the subjects that NATS puts in place of the reply subjects of another account.
OTHER_ACCOUNT = "_R_"
_LEASES = "gnomon_leases"


class NatsService(Struct, frozen=True):
    """Subjects on which an account answers requests of another account."""

    subject: str
    #: Whether a request may have several replies.
    streams: bool = False


#: The services of the account of servers for workers, and those of the account of workers for servers.
SERVER_SERVICES = (
    NatsService(f"$JS.API.CONSUMER.MSG.NEXT.{subjects.WORK}.*", streams=True),
    NatsService(f"$JS.ACK.{subjects.WORK}.>"),
    NatsService(subjects.REPORT_SUBJECTS),
    NatsService(subjects.HEARTBEATS),
    NatsService(subjects.GRANTS),
)
WORKER_SERVICES = (NatsService(subjects.DIRECT_SUBJECTS),)


class NatsPermissions(Struct, frozen=True, kw_only=True):
    """The subjects that a user may publish on and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    #: Whether it may reply to a message, once.
    replies: bool = False


def server_permissions(*, replies_to: str = WORKER_INBOX) -> NatsPermissions:
    """The permissions of a server; `replies_to` is the prefix of the reply subjects of workers."""
    work, reports, dead = subjects.WORK, subjects.REPORTS, subjects.DEAD
    streams = [
        f"$JS.API.STREAM.{what}.{name}" for name in (work, reports, dead) for what in ("INFO", "CREATE", "UPDATE")
    ]
    consumers = [
        f"$JS.API.CONSUMER.{what}.{name}.>" for name in (work, reports) for what in ("CREATE", "DURABLE.CREATE")
    ]
    reading = f"{reports}.{subjects.SCHEDULERS}"
    return NatsPermissions(
        publish=(
            subjects.WORK_SUBJECTS,
            "mq.scheduler.>",
            # Create, update and inspect its streams and consumers, but not delete them.
            *streams,
            *consumers,
            f"$JS.API.CONSUMER.INFO.{work}.*",
            f"$JS.API.CONSUMER.INFO.{reading}",
            # Read and acknowledge reports of workers.
            f"$JS.API.CONSUMER.MSG.NEXT.{reading}",
            f"$JS.ACK.{reading}.>",
            # Move a task that was delivered too often to the dead-letter stream.
            f"$JS.API.STREAM.MSG.GET.{work}",
            f"$JS.API.STREAM.MSG.DELETE.{work}",
            # Singleton leases.
            f"$KV.{_LEASES}.>",
            *(f"$JS.API.STREAM.{what}.KV_{_LEASES}" for what in ("INFO", "CREATE", "MSG.GET")),
            "$JS.API.INFO",
            f"{replies_to}.>",
        ),
        subscribe=(
            "mq.scheduler.complete.>",
            "mq.scheduler.hint.>",
            f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{work}.*",
            f"{SERVER_INBOX}.>",
        ),
    )


def worker_permissions(pool: str, name: str) -> NatsPermissions:
    """The permissions of an enrolled worker: the tasks of its pool, and its own subjects."""
    # The subjects depend on the identity only, so that any start will do.
    worker = f"{checked_identity(pool, name)}.start"
    consumer = f"{subjects.WORK}.{subjects.consumer_name(pool)}"
    direct = subjects.direct_subject(worker).removesuffix("start")
    return NatsPermissions(
        publish=(
            f"$JS.API.CONSUMER.MSG.NEXT.{consumer}",
            f"$JS.ACK.{consumer}.>",
            subjects.report_subject(worker),
            subjects.heartbeat_subject(worker),
            subjects.grant_subject(worker),
        ),
        subscribe=(f"{WORKER_INBOX}.{subjects.worker_token(worker)}.>", f"{direct}*"),
        replies=True,
    )
