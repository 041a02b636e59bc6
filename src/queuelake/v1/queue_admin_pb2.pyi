from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListQueuesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "prefix", "type")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    prefix: str
    type: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., prefix: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_page_token")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueSummary]
    next_page_token: str
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class QueueSummary(_message.Message):
    __slots__ = ("name", "partitions", "ordering", "type", "depth", "in_flight", "groups", "consumers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    ordering: str
    type: str
    depth: int
    in_flight: int
    groups: int
    consumers: int
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., ordering: _Optional[str] = ..., type: _Optional[str] = ..., depth: _Optional[int] = ..., in_flight: _Optional[int] = ..., groups: _Optional[int] = ..., consumers: _Optional[int] = ...) -> None: ...

class GetQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "settings", "configured", "created_at_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _struct_pb2.Struct
    configured: _struct_pb2.Struct
    created_at_ms: int
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., configured: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., created_at_ms: _Optional[int] = ...) -> None: ...

class ConfigureQueueRequest(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ConfigureQueueResponse(_message.Message):
    __slots__ = ("created", "queue")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    created: bool
    queue: Queue
    def __init__(self, created: _Optional[bool] = ..., queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ("unarchived",)
    UNARCHIVED_FIELD_NUMBER: _ClassVar[int]
    unarchived: int
    def __init__(self, unarchived: _Optional[int] = ...) -> None: ...

class GetQueueStatsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class QueueStats(_message.Message):
    __slots__ = ("name", "depth", "partitions", "groups", "rates", "in_flight", "retrying", "delayed", "dlq", "enqueued_total", "dequeued_total", "acked_total", "nacked_total", "redelivered_total", "expired_total", "dropped_total", "dead_lettered_by_reason", "latency_p50_s", "latency_p99_s")
    class DeadLetteredByReasonEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    DLQ_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DEQUEUED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ACKED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    NACKED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DROPPED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_BY_REASON_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P50_S_FIELD_NUMBER: _ClassVar[int]
    LATENCY_P99_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    depth: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStats]
    groups: _containers.RepeatedCompositeFieldContainer[GroupStats]
    rates: Rates
    in_flight: int
    retrying: int
    delayed: int
    dlq: int
    enqueued_total: int
    dequeued_total: int
    acked_total: int
    nacked_total: int
    redelivered_total: int
    expired_total: int
    dropped_total: int
    dead_lettered_by_reason: _containers.ScalarMap[str, int]
    latency_p50_s: float
    latency_p99_s: float
    def __init__(self, name: _Optional[str] = ..., depth: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionStats, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupStats, _Mapping]]] = ..., rates: _Optional[_Union[Rates, _Mapping]] = ..., in_flight: _Optional[int] = ..., retrying: _Optional[int] = ..., delayed: _Optional[int] = ..., dlq: _Optional[int] = ..., enqueued_total: _Optional[int] = ..., dequeued_total: _Optional[int] = ..., acked_total: _Optional[int] = ..., nacked_total: _Optional[int] = ..., redelivered_total: _Optional[int] = ..., expired_total: _Optional[int] = ..., dropped_total: _Optional[int] = ..., dead_lettered_by_reason: _Optional[_Mapping[str, int]] = ..., latency_p50_s: _Optional[float] = ..., latency_p99_s: _Optional[float] = ...) -> None: ...

class PartitionStats(_message.Message):
    __slots__ = ("partition", "depth", "first_offset", "next_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    depth: int
    first_offset: int
    next_offset: int
    def __init__(self, partition: _Optional[int] = ..., depth: _Optional[int] = ..., first_offset: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class GroupStats(_message.Message):
    __slots__ = ("group", "lag", "consumers", "in_flight", "retrying")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    group: str
    lag: int
    consumers: int
    in_flight: int
    retrying: int
    def __init__(self, group: _Optional[str] = ..., lag: _Optional[int] = ..., consumers: _Optional[int] = ..., in_flight: _Optional[int] = ..., retrying: _Optional[int] = ...) -> None: ...

class Rates(_message.Message):
    __slots__ = ("enqueue_per_s", "dequeue_per_s", "ack_per_s")
    ENQUEUE_PER_S_FIELD_NUMBER: _ClassVar[int]
    DEQUEUE_PER_S_FIELD_NUMBER: _ClassVar[int]
    ACK_PER_S_FIELD_NUMBER: _ClassVar[int]
    enqueue_per_s: float
    dequeue_per_s: float
    ack_per_s: float
    def __init__(self, enqueue_per_s: _Optional[float] = ..., dequeue_per_s: _Optional[float] = ..., ack_per_s: _Optional[float] = ...) -> None: ...

class ListConsumersRequest(_message.Message):
    __slots__ = ("name", "page_size", "page_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    page_size: int
    page_token: str
    def __init__(self, name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListConsumersResponse(_message.Message):
    __slots__ = ("consumers", "next_page_token")
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    consumers: _containers.RepeatedCompositeFieldContainer[Consumer]
    next_page_token: str
    def __init__(self, consumers: _Optional[_Iterable[_Union[Consumer, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Consumer(_message.Message):
    __slots__ = ("group", "client_id", "partitions", "held", "last_heartbeat_ms", "status")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    held: int
    last_heartbeat_ms: int
    status: str
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., held: _Optional[int] = ..., last_heartbeat_ms: _Optional[int] = ..., status: _Optional[str] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("name", "group")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    name: str
    group: str
    def __init__(self, name: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeekMessagesRequest(_message.Message):
    __slots__ = ("name", "from_offset", "partition", "page_size", "page_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    from_offset: int
    partition: int
    page_size: int
    page_token: str
    def __init__(self, name: _Optional[str] = ..., from_offset: _Optional[int] = ..., partition: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class PeekMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "partition", "offset", "topic", "key", "payload", "payload_bytes", "properties", "content_type", "response_topic", "correlation_data", "priority", "publisher", "published_at_ms", "expires_at_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_DATA_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    partition: int
    offset: int
    topic: str
    key: str
    payload: bytes
    payload_bytes: int
    properties: _containers.RepeatedCompositeFieldContainer[Property]
    content_type: str
    response_topic: str
    correlation_data: bytes
    priority: int
    publisher: str
    published_at_ms: int
    expires_at_ms: int
    def __init__(self, id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., topic: _Optional[str] = ..., key: _Optional[str] = ..., payload: _Optional[bytes] = ..., payload_bytes: _Optional[int] = ..., properties: _Optional[_Iterable[_Union[Property, _Mapping]]] = ..., content_type: _Optional[str] = ..., response_topic: _Optional[str] = ..., correlation_data: _Optional[bytes] = ..., priority: _Optional[int] = ..., publisher: _Optional[str] = ..., published_at_ms: _Optional[int] = ..., expires_at_ms: _Optional[int] = ...) -> None: ...

class Property(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class PublishMessageRequest(_message.Message):
    __slots__ = ("name", "payload", "key", "properties", "content_type")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    payload: bytes
    key: str
    properties: _containers.ScalarMap[str, str]
    content_type: str
    def __init__(self, name: _Optional[str] = ..., payload: _Optional[bytes] = ..., key: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., content_type: _Optional[str] = ...) -> None: ...

class PublishMessageResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PurgeQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PurgeQueueResponse(_message.Message):
    __slots__ = ("purged",)
    PURGED_FIELD_NUMBER: _ClassVar[int]
    purged: int
    def __init__(self, purged: _Optional[int] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("name", "page_size", "page_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    page_size: int
    page_token: str
    def __init__(self, name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("messages", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("id", "partition", "offset", "topic", "key", "payload", "payload_bytes", "properties", "content_type", "response_topic", "correlation_data", "priority", "publisher", "published_at_ms", "expires_at_ms", "dlq_original_queue", "dlq_original_topic", "dlq_original_id", "dlq_group", "dlq_reason", "dlq_reason_text", "dlq_delivery_count", "dlq_first_attempt", "dlq_moved_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_DATA_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DLQ_ORIGINAL_QUEUE_FIELD_NUMBER: _ClassVar[int]
    DLQ_ORIGINAL_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DLQ_ORIGINAL_ID_FIELD_NUMBER: _ClassVar[int]
    DLQ_GROUP_FIELD_NUMBER: _ClassVar[int]
    DLQ_REASON_FIELD_NUMBER: _ClassVar[int]
    DLQ_REASON_TEXT_FIELD_NUMBER: _ClassVar[int]
    DLQ_DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    DLQ_FIRST_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DLQ_MOVED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    partition: int
    offset: int
    topic: str
    key: str
    payload: bytes
    payload_bytes: int
    properties: _containers.RepeatedCompositeFieldContainer[Property]
    content_type: str
    response_topic: str
    correlation_data: bytes
    priority: int
    publisher: str
    published_at_ms: int
    expires_at_ms: int
    dlq_original_queue: str
    dlq_original_topic: str
    dlq_original_id: str
    dlq_group: str
    dlq_reason: str
    dlq_reason_text: str
    dlq_delivery_count: int
    dlq_first_attempt: str
    dlq_moved_at: str
    def __init__(self, id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., topic: _Optional[str] = ..., key: _Optional[str] = ..., payload: _Optional[bytes] = ..., payload_bytes: _Optional[int] = ..., properties: _Optional[_Iterable[_Union[Property, _Mapping]]] = ..., content_type: _Optional[str] = ..., response_topic: _Optional[str] = ..., correlation_data: _Optional[bytes] = ..., priority: _Optional[int] = ..., publisher: _Optional[str] = ..., published_at_ms: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., dlq_original_queue: _Optional[str] = ..., dlq_original_topic: _Optional[str] = ..., dlq_original_id: _Optional[str] = ..., dlq_group: _Optional[str] = ..., dlq_reason: _Optional[str] = ..., dlq_reason_text: _Optional[str] = ..., dlq_delivery_count: _Optional[int] = ..., dlq_first_attempt: _Optional[str] = ..., dlq_moved_at: _Optional[str] = ...) -> None: ...

class RetryDeadLetterRequest(_message.Message):
    __slots__ = ("name", "id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class RetryDeadLetterResponse(_message.Message):
    __slots__ = ("queue", "id", "partition")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    partition: int
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class DiscardDeadLetterRequest(_message.Message):
    __slots__ = ("name", "id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class DiscardDeadLetterResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LetterChoice(_message.Message):
    __slots__ = ("reason", "group", "key", "moved_after", "moved_before", "limit")
    REASON_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MOVED_AFTER_FIELD_NUMBER: _ClassVar[int]
    MOVED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    group: str
    key: str
    moved_after: str
    moved_before: str
    limit: int
    def __init__(self, reason: _Optional[str] = ..., group: _Optional[str] = ..., key: _Optional[str] = ..., moved_after: _Optional[str] = ..., moved_before: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class RetryDeadLettersRequest(_message.Message):
    __slots__ = ("name", "choice")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    name: str
    choice: LetterChoice
    def __init__(self, name: _Optional[str] = ..., choice: _Optional[_Union[LetterChoice, _Mapping]] = ...) -> None: ...

class RetryDeadLettersResponse(_message.Message):
    __slots__ = ("done", "more")
    DONE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    done: int
    more: bool
    def __init__(self, done: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class DiscardDeadLettersRequest(_message.Message):
    __slots__ = ("name", "choice")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    name: str
    choice: LetterChoice
    def __init__(self, name: _Optional[str] = ..., choice: _Optional[_Union[LetterChoice, _Mapping]] = ...) -> None: ...

class DiscardDeadLettersResponse(_message.Message):
    __slots__ = ("done", "more")
    DONE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    done: int
    more: bool
    def __init__(self, done: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...
