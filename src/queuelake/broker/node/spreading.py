"""Operations of a cluster with several shards: which broker, or brokers, each of them is for.

`TABLE` has every operation of a broker, and the way it goes: see `ways.py`. What a node answers
itself is not here. Things of the cluster as a whole, such as jobs and the leases of lakes, are with
the first shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from queuelake import (
    control_access,
    control_admin,
    control_backup,
    control_ecq,
    control_mq,
    control_pipeline,
    control_queues,
    control_sdv,
)
from queuelake.broker.node import paging
from queuelake.broker.node.asking import Brokers, Node
from queuelake.broker.node.ways import (
    Way,
    added_up,
    all_parts,
    at,
    bans,
    change_access,
    configure_fanout,
    create_message_queue,
    disconnect,
    done_everywhere,
    everywhere,
    first_shard,
    in_turn,
    list_of,
    named_shard,
    of_name,
    of_queue,
    of_topic,
    one_client,
    to_queue,
    whoever_has_it,
)
from queuelake.broker.operation import Operation
from queuelake.control import MetricsSnapshot, Readiness, Status
from queuelake.control_ecq import EcqGcAnswer, EcqStatus
from queuelake.control_mq import MqStats
from queuelake.control_pipeline import ArchiveLag
from queuelake.control_queues import (
    DeadLetterPage,
    LettersDone,
    MessagePage,
    Purged,
    QueueDeleted,
    QueueStats,
)
from queuelake.control_sdv import SdvCancelled, SdvGcAnswer, SdvRequest, SdvStatus

_BROKER: Final[dict[str, Way]] = {
    "readiness": added_up(Readiness),
    "status": added_up(Status),
    "metrics": added_up(MetricsSnapshot),
    "clients": list_of(paging.CLIENTS),
    "client": one_client,
    "disconnect": disconnect,
    control_admin.SUBSCRIPTIONS: list_of(paging.SUBSCRIPTIONS),
    control_admin.RETAINED: list_of(paging.RETAINED),
    control_admin.RETAINED_MESSAGE: at(of_topic),
    control_admin.RETAINED_DELETE: at(of_topic),
    control_admin.BANS: bans,
    control_admin.BAN_ADD: everywhere,
    control_admin.BAN_REMOVE: everywhere,
    control_admin.ACL_TEST: at(of_name("client_id")),
    control_admin.SETTINGS: first_shard,
}
_ACCESS: Final[dict[str, Way]] = {
    control_access.LOG_IN: first_shard,
    control_access.CONSOLE_USER: first_shard,
    control_access.USERS: first_shard,
    control_access.USER: first_shard,
    control_access.USER_ADD: change_access,
    control_access.USER_CHANGE: change_access,
    control_access.USER_DELETE: change_access,
    control_access.ACL: first_shard,
    control_access.ACL_RULES: first_shard,
    control_access.ACL_REPLACE: change_access,
    control_access.ACCESS_RELOAD: everywhere,
    control_backup.BACKUPS: first_shard,
    control_backup.BACKUP: first_shard,
    control_backup.BACKUP_START: first_shard,
    control_backup.BACKUP_DELETE: first_shard,
}
_QUEUES: Final[dict[str, Way]] = {
    control_queues.QUEUES: list_of(paging.QUEUES),
    control_queues.QUEUE: to_queue(whoever_has_it),
    control_queues.QUEUE_CONFIGURE: to_queue(all_parts),
    control_queues.QUEUE_DELETE: to_queue(added_up(QueueDeleted)),
    control_queues.QUEUE_STATS: to_queue(added_up(QueueStats)),
    control_queues.QUEUE_CONSUMERS: to_queue(list_of(paging.CONSUMERS)),
    control_queues.QUEUE_MESSAGES: to_queue(in_turn(MessagePage)),
    control_queues.QUEUE_PURGE: to_queue(added_up(Purged)),
    control_queues.QUEUE_DLQ: to_queue(in_turn(DeadLetterPage)),
    control_queues.QUEUE_DLQ_RETRY: to_queue(whoever_has_it),
    control_queues.QUEUE_DLQ_DISCARD: to_queue(whoever_has_it),
    control_queues.QUEUE_DLQ_RETRY_MANY: to_queue(added_up(LettersDone)),
    control_queues.QUEUE_DLQ_DISCARD_MANY: to_queue(added_up(LettersDone)),
    control_queues.QUEUE_PUBLISH: at(of_queue),
    control_queues.QUEUE_GROUP_DELETE: to_queue(whoever_has_it),
}
_MESSAGE_QUEUES: Final[dict[str, Way]] = {
    control_mq.MQ_QUEUES: list_of(paging.MESSAGE_QUEUES),
    control_mq.MQ_QUEUE: whoever_has_it,
    control_mq.MQ_CREATE: create_message_queue,
    control_mq.MQ_UPDATE: everywhere,
    control_mq.MQ_DELETE: everywhere,
    control_mq.MQ_STATS: added_up(MqStats),
    control_mq.MQ_MESSAGES: in_turn(MessagePage),
    control_mq.MQ_CONFIG: first_shard,
    control_mq.MQ_CONFIGURE: everywhere,
    control_mq.MQ_COLLECT_GARBAGE: everywhere,
    control_mq.QUEUE_EVERYWHERE: at(of_queue),
}
_DEVICES: Final[dict[str, Way]] = {
    control_ecq.ECQ_STATUS: added_up(EcqStatus),
    control_ecq.ECQ_INSPECT: at(of_name("owner")),
    control_ecq.ECQ_OWNERS: list_of(paging.OWNERS),
    control_ecq.ECQ_ENTRIES: at(of_name("owner")),
    control_ecq.ECQ_GC: done_everywhere(EcqGcAnswer),
    control_ecq.ECQ_CONFIG: first_shard,
    control_ecq.ECQ_CONFIGURE: everywhere,
    control_ecq.ECQ_REWIND: at(of_name("owner")),
    control_sdv.SDV_STATUS: added_up(SdvStatus),
    control_sdv.SDV_INSPECT: at(of_name("vin")),
    control_sdv.SDV_REQUEST: added_up(SdvRequest),
    control_sdv.SDV_REQUESTS: list_of(paging.REQUESTS),
    control_sdv.SDV_CANCEL: done_everywhere(SdvCancelled),
    control_sdv.SDV_GC: done_everywhere(SdvGcAnswer),
    control_sdv.SDV_CONFIG: first_shard,
    control_sdv.SDV_CONFIGURE: configure_fanout,
}
_PIPELINE: Final[dict[str, Way]] = {
    # The export process has the stores of all shards before it.
    control_pipeline.QUEUE_FLAGS: named_shard,
    control_pipeline.STAGE_TARGET: named_shard,
    control_pipeline.STAGE_LETTERS: named_shard,
    control_pipeline.COMMIT_STAGE: named_shard,
    control_pipeline.STAGE_PART: named_shard,
    control_pipeline.BATCH: named_shard,
    control_pipeline.LAKE_ARCHIVED: named_shard,
    control_pipeline.LAKE_LEASE: first_shard,
    control_pipeline.LAKE_RELEASE: first_shard,
    control_pipeline.JOB_START: first_shard,
    control_pipeline.JOB_TOLD: first_shard,
    control_pipeline.JOBS: first_shard,
    control_pipeline.JOB: first_shard,
    control_pipeline.JOB_CANCEL: first_shard,
    control_pipeline.ARCHIVE_LAG: added_up(ArchiveLag),
}
TABLE: Final[Mapping[str, Way]] = {
    **_BROKER,
    **_ACCESS,
    **_QUEUES,
    **_MESSAGE_QUEUES,
    **_DEVICES,
    **_PIPELINE,
}


class Spread(Mapping[str, Operation]):
    """The operations of a node: `own`, and those of the brokers of all shards."""

    def __init__(self, own: Mapping[str, Operation], node: Node) -> None:
        self._own = own
        self._brokers = Brokers(node)

    def __getitem__(self, name: str) -> Operation:
        if name in self._own:
            return self._own[name]
        way = TABLE[name]
        return lambda args: way(self._brokers, name, args)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from [name for name in TABLE if name not in self._own]

    def __len__(self) -> int:
        return len(self._own.keys() | TABLE.keys())
