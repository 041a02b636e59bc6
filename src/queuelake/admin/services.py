"""What the admin process can do: one function for each thing, for REST, gRPC and the console alike.

The broker decides; these functions ask it over the control socket and return its Structs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from queuelake import control_admin as admin_ops
from queuelake import control_ecq as ecq_ops
from queuelake import control_mq as mq_ops
from queuelake import control_pipeline as pipeline_ops
from queuelake import control_queues as ops
from queuelake import control_sdv as sdv_ops
from queuelake.admin.access_services import AccessServices
from queuelake.admin.auth import Gate
from queuelake.admin.cluster_services import ClusterServices
from queuelake.admin.job_starting import JobStarter, JobWanted, NoPipelineError
from queuelake.apikey import KeyFile
from queuelake.control import (
    CHILD_STARTED,
    ClientInfo,
    ClientPage,
    MetricsSnapshot,
    Readiness,
    Status,
)
from queuelake.control_admin import (
    AclAnswer,
    BanInfo,
    BanList,
    RetainedMessage,
    RetainedPage,
    SettingsInForce,
    SubscriptionPage,
)
from queuelake.control_audit import AUDIT, AuditPage
from queuelake.control_client import ControlClient
from queuelake.control_ecq import (
    EcqConfigInfo,
    EcqEntryPage,
    EcqGcAnswer,
    EcqInspection,
    EcqOwnerPage,
    EcqPosition,
    EcqStatus,
)
from queuelake.control_mq import MqConfigInfo, MqInfo, MqPage, MqStats
from queuelake.control_pipeline import ArchiveLag, JobPage
from queuelake.control_queues import (
    ConsumerPage,
    DeadLetterPage,
    LettersDone,
    MessagePage,
    Purged,
    QueueConfigured,
    QueueDeleted,
    QueueInfo,
    QueuePage,
    QueueStats,
    Redriven,
)
from queuelake.control_sdv import (
    SdvCancelled,
    SdvConfigInfo,
    SdvGcAnswer,
    SdvRequest,
    SdvRequestPage,
    SdvStatus,
    SdvVehicle,
)
from queuelake.errors import BrokerDownError, QueuelakeError
from queuelake.flight import JobTold

CLIENTS_PER_PAGE_MAX = 1000
MANY_TIMEOUT_S = 300.0  # of dead letters, in slices
CANCEL_TIMEOUT_S = 60.0  # of as many vehicles as a trigger may name, in slices
READINESS_TIMEOUT_S = 2.0
READINESS_AGE_S_MAX = 0.25


class Services(AccessServices, ClusterServices):
    """The operations of one broker, and the keys which open them."""

    def __init__(
        self, control: ControlClient, keys: KeyFile, starter: JobStarter | None = None
    ) -> None:
        super().__init__(control)
        self.gate = Gate(keys)
        self._starter = starter
        self._readiness = Readiness(ready=False)
        self._readiness_at = float("-inf")
        self._asking_readiness = asyncio.Lock()

    async def close(self) -> None:
        await self._control.close()

    async def say_started(self) -> None:
        """The broker says `ready` when it has heard this; one which is down hears nothing."""
        with contextlib.suppress(QueuelakeError):
            await self._control.call(CHILD_STARTED, bool, {"name": "admin"})

    async def status(self) -> Status:
        return await self._control.call("status", Status)

    async def metrics(self) -> MetricsSnapshot:
        return await self._control.call("metrics", MetricsSnapshot)

    async def readiness(self) -> Readiness:
        """Whether the broker serves; a broker that does not answer is a reason, not an error.

        Everybody may ask this, so a flood of questions costs the broker one in READINESS_AGE_S_MAX.
        """
        async with self._asking_readiness:
            if time.monotonic() - self._readiness_at > READINESS_AGE_S_MAX:
                self._readiness = await self._ask_readiness()
                self._readiness_at = time.monotonic()
            return self._readiness

    async def clients(self, limit: int, cursor: str, search: str = "") -> ClientPage:
        """`search`: those which have this in their client id, user or address."""
        args: dict[str, object] = {"limit": limit, "cursor": cursor, "search": search}
        return await self._control.call("clients", ClientPage, args)

    async def client(self, client_id: str) -> ClientInfo:
        return await self._control.call("client", ClientInfo, {"client_id": client_id})

    async def disconnect(self, client_id: str) -> None:
        await self._control.call("disconnect", object, {"client_id": client_id})

    async def audit(self, /, limit: int, cursor: str, **wanted: str) -> AuditPage:
        """The newest first; `wanted`: of one caller, operation or target."""
        args: dict[str, object] = {"limit": limit, "cursor": cursor, **wanted}
        return await self._control.call(AUDIT, AuditPage, args)

    async def settings(self) -> SettingsInForce:
        return await self._control.call(admin_ops.SETTINGS, SettingsInForce)

    # Subscriptions, retained messages, who may do what

    async def subscriptions(self, /, limit: int, cursor: str, **wanted: str) -> SubscriptionPage:
        """`wanted`: of one client_id, or those which a message to this topic reaches."""
        args: dict[str, object] = {"limit": limit, "cursor": cursor, **wanted}
        return await self._control.call(admin_ops.SUBSCRIPTIONS, SubscriptionPage, args)

    async def retained(self, limit: int, cursor: str, topic_filter: str) -> RetainedPage:
        args: dict[str, object] = {"limit": limit, "cursor": cursor, "filter": topic_filter}
        return await self._control.call(admin_ops.RETAINED, RetainedPage, args)

    async def retained_message(self, topic: str) -> RetainedMessage:
        return await self._control.call(
            admin_ops.RETAINED_MESSAGE, RetainedMessage, {"topic": topic}
        )

    async def delete_retained(self, topic: str) -> None:
        await self._control.call(admin_ops.RETAINED_DELETE, object, {"topic": topic})

    async def bans(self) -> BanList:
        return await self._control.call(admin_ops.BANS, BanList)

    async def ban(self, kind: str, value: str, seconds: float) -> BanInfo:
        args: dict[str, object] = {"kind": kind, "value": value, "seconds": seconds}
        return await self._control.call(admin_ops.BAN_ADD, BanInfo, args)

    async def end_ban(self, kind: str, value: str) -> None:
        args: dict[str, object] = {"kind": kind, "value": value}
        await self._control.call(admin_ops.BAN_REMOVE, object, args)

    async def test_acl(self, /, action: str, topic: str, **client: str) -> AclAnswer:
        """`client`: client_id, username, ip."""
        args: dict[str, object] = {"action": action, "topic": topic, **client}
        return await self._control.call(admin_ops.ACL_TEST, AclAnswer, args)

    # Queues, by their bare name

    async def queues(self, limit: int, cursor: str, **wanted: str) -> QueuePage:
        """`wanted`: those whose name begins with `prefix`, those of one `type`."""
        args: dict[str, object] = {"limit": limit, "cursor": cursor, **wanted}
        return await self._control.call(ops.QUEUES, QueuePage, args)

    async def queue(self, name: str) -> QueueInfo:
        return await self._control.call(ops.QUEUE, QueueInfo, {"name": name})

    async def configure_queue(self, name: str, changes: bytes) -> QueueConfigured:
        """Change the settings which are in this JSON; a queue which is not there is created."""
        args: dict[str, object] = {"name": name, "changes": changes}
        return await self._control.call(ops.QUEUE_CONFIGURE, QueueConfigured, args)

    async def delete_queue(self, name: str) -> QueueDeleted:
        return await self._control.call(ops.QUEUE_DELETE, QueueDeleted, {"name": name})

    async def queue_stats(self, name: str) -> QueueStats:
        return await self._control.call(ops.QUEUE_STATS, QueueStats, {"name": name})

    async def queue_consumers(self, name: str, limit: int, cursor: str) -> ConsumerPage:
        args: dict[str, object] = {"name": name, "limit": limit, "cursor": cursor}
        return await self._control.call(ops.QUEUE_CONSUMERS, ConsumerPage, args)

    async def queue_messages(
        self, name: str, start: int, limit: int, partition: int | None, cursor: str
    ) -> MessagePage:
        """Look at messages from offset `start` on, of one partition or of all."""
        args: dict[str, object] = {
            "name": name,
            "from": start,
            "limit": limit,
            "partition": partition,
            "cursor": cursor,
        }
        return await self._control.call(ops.QUEUE_MESSAGES, MessagePage, args)

    async def purge_queue(self, name: str) -> Purged:
        return await self._control.call(ops.QUEUE_PURGE, Purged, {"name": name})

    async def dead_letters(self, name: str, limit: int, cursor: str) -> DeadLetterPage:
        args: dict[str, object] = {"name": name, "limit": limit, "cursor": cursor}
        return await self._control.call(ops.QUEUE_DLQ, DeadLetterPage, args)

    async def retry_dead_letter(self, name: str, message_id: str) -> Redriven:
        args: dict[str, object] = {"name": name, "id": message_id}
        return await self._control.call(ops.QUEUE_DLQ_RETRY, Redriven, args)

    async def discard_dead_letter(self, name: str, message_id: str) -> None:
        args: dict[str, object] = {"name": name, "id": message_id}
        await self._control.call(ops.QUEUE_DLQ_DISCARD, object, args)

    async def retry_dead_letters(self, name: str, choice: bytes) -> LettersDone:
        """Put back all dead letters which this JSON means (`LetterChoice`)."""
        return await self._many(ops.QUEUE_DLQ_RETRY_MANY, name, choice)

    async def discard_dead_letters(self, name: str, choice: bytes) -> LettersDone:
        return await self._many(ops.QUEUE_DLQ_DISCARD_MANY, name, choice)

    async def _many(self, operation: str, name: str, choice: bytes) -> LettersDone:
        args: dict[str, object] = {"name": name, "choice": choice}
        return await self._control.call(operation, LettersDone, args, MANY_TIMEOUT_S)

    async def publish_message(self, name: str, message: bytes) -> None:
        """Publish what this JSON says (`NewMessage`)."""
        args: dict[str, object] = {"name": name, "message": message}
        await self._control.call(ops.QUEUE_PUBLISH, object, args)

    async def delete_group(self, name: str, group: str) -> None:
        args: dict[str, object] = {"name": name, "group": group}
        await self._control.call(ops.QUEUE_GROUP_DELETE, object, args)

    # Message queues, by their name or the topic filter of one without a name

    async def message_queues(self, limit: int, cursor: str) -> MqPage:
        args: dict[str, object] = {"limit": limit, "cursor": cursor}
        return await self._control.call(mq_ops.MQ_QUEUES, MqPage, args)

    async def message_queue(self, name: str) -> MqInfo:
        return await self._control.call(mq_ops.MQ_QUEUE, MqInfo, {"name": name})

    async def create_message_queue(self, settings: bytes) -> MqInfo:
        return await self._control.call(mq_ops.MQ_CREATE, MqInfo, {"settings": settings})

    async def update_message_queue(self, name: str, settings: bytes) -> MqInfo:
        """Change the settings which are in this JSON; the others stay."""
        args: dict[str, object] = {"name": name, "settings": settings}
        return await self._control.call(mq_ops.MQ_UPDATE, MqInfo, args)

    async def delete_message_queue(self, name: str) -> None:
        await self._control.call(mq_ops.MQ_DELETE, object, {"name": name})

    async def message_queue_stats(self, name: str) -> MqStats:
        return await self._control.call(mq_ops.MQ_STATS, MqStats, {"name": name})

    async def message_queue_messages(self, name: str, limit: int, cursor: str) -> MessagePage:
        """Look at messages, in the order in which they came."""
        args: dict[str, object] = {"name": name, "limit": limit, "cursor": cursor}
        return await self._control.call(mq_ops.MQ_MESSAGES, MessagePage, args)

    async def message_queue_config(self) -> MqConfigInfo:
        return await self._control.call(mq_ops.MQ_CONFIG, MqConfigInfo)

    async def configure_message_queues(self, settings: bytes) -> None:
        await self._control.call(mq_ops.MQ_CONFIGURE, object, {"settings": settings})

    async def collect_message_queue_garbage(self) -> None:
        await self._control.call(mq_ops.MQ_COLLECT_GARBAGE, object)

    # Device mailboxes, by their owner

    async def ecq_status(self) -> EcqStatus:
        return await self._control.call(ecq_ops.ECQ_STATUS, EcqStatus)

    async def inspect_mailbox(self, owner: str) -> EcqInspection:
        return await self._control.call(ecq_ops.ECQ_INSPECT, EcqInspection, {"owner": owner})

    async def mailbox_owners(self, limit: int, cursor: str) -> EcqOwnerPage:
        args: dict[str, object] = {"limit": limit, "cursor": cursor}
        return await self._control.call(ecq_ops.ECQ_OWNERS, EcqOwnerPage, args)

    async def mailbox_entries(self, owner: str, limit: int, cursor: str) -> EcqEntryPage:
        args: dict[str, object] = {"owner": owner, "limit": limit, "cursor": cursor}
        return await self._control.call(ecq_ops.ECQ_ENTRIES, EcqEntryPage, args)

    async def rewind_mailbox(self, owner: str, body: bytes) -> EcqPosition:
        args: dict[str, object] = {"owner": owner, "body": body}
        return await self._control.call(ecq_ops.ECQ_REWIND, EcqPosition, args)

    async def collect_mailbox_garbage(self) -> EcqGcAnswer:
        return await self._control.call(ecq_ops.ECQ_GC, EcqGcAnswer)

    async def ecq_config(self) -> EcqConfigInfo:
        return await self._control.call(ecq_ops.ECQ_CONFIG, EcqConfigInfo)

    async def configure_ecq(self, settings: bytes) -> EcqConfigInfo:
        args: dict[str, object] = {"settings": settings}
        return await self._control.call(ecq_ops.ECQ_CONFIGURE, EcqConfigInfo, args)

    # Vehicle fan-out

    async def sdv_status(self) -> SdvStatus:
        return await self._control.call(sdv_ops.SDV_STATUS, SdvStatus)

    async def inspect_vehicle(self, vin: str) -> SdvVehicle:
        return await self._control.call(sdv_ops.SDV_INSPECT, SdvVehicle, {"vin": vin})

    async def fanout_requests(self, limit: int, cursor: str) -> SdvRequestPage:
        args: dict[str, object] = {"limit": limit, "cursor": cursor}
        return await self._control.call(sdv_ops.SDV_REQUESTS, SdvRequestPage, args)

    async def fanout_request(self, request_id: str) -> SdvRequest:
        return await self._control.call(sdv_ops.SDV_REQUEST, SdvRequest, {"request_id": request_id})

    async def cancel_fanout_request(self, request_id: str, vins: list[str]) -> SdvCancelled:
        """Cancel what was not sent to these vehicles; without any, to every vehicle."""
        args: dict[str, object] = {"request_id": request_id, "vins": vins}
        return await self._control.call(sdv_ops.SDV_CANCEL, SdvCancelled, args, CANCEL_TIMEOUT_S)

    async def collect_fanout_garbage(self) -> SdvGcAnswer:
        return await self._control.call(sdv_ops.SDV_GC, SdvGcAnswer)

    async def sdv_config(self) -> SdvConfigInfo:
        return await self._control.call(sdv_ops.SDV_CONFIG, SdvConfigInfo)

    async def configure_sdv(self, settings: bytes) -> SdvConfigInfo:
        args: dict[str, object] = {"settings": settings}
        return await self._control.call(sdv_ops.SDV_CONFIGURE, SdvConfigInfo, args)

    # The data pipeline

    async def jobs(self, limit: int, cursor: str) -> JobPage:
        args: dict[str, object] = {"limit": limit, "cursor": cursor}
        return await self._control.call(pipeline_ops.JOBS, JobPage, args)

    async def job(self, job_id: str) -> JobTold:
        return await self._control.call(pipeline_ops.JOB, JobTold, {"id": job_id})

    async def start_job(self, wanted: JobWanted) -> JobTold:
        """Raises NoPipelineError where no job can run."""
        if self._starter is None:
            raise NoPipelineError("jobs are started by the admin process of a broker")
        return await self._starter.start(wanted)

    async def cancel_job(self, job_id: str) -> JobTold:
        return await self._control.call(pipeline_ops.JOB_CANCEL, JobTold, {"id": job_id})

    async def archive_lag(self) -> ArchiveLag:
        return await self._control.call(pipeline_ops.ARCHIVE_LAG, ArchiveLag)

    async def _ask_readiness(self) -> Readiness:
        try:
            return await self._control.call("readiness", Readiness, timeout_s=READINESS_TIMEOUT_S)
        except BrokerDownError as exc:
            return Readiness(ready=False, reasons=[f"broker does not answer: {exc}"])
