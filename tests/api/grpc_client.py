"""Callers of the gRPC service: one with the generated code, one which knows only reflection."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Self

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from queuelake.v1 import queue_admin_pb2 as pb2
from queuelake.v1 import queue_admin_pb2_grpc

TIMEOUT_S = 30.0
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)  # a connection of one's own
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


class Refused(Exception):
    """A call ended with a status; `code` is what REST would have said."""

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(error.details())
        self.status: grpc.StatusCode = error.code()
        self.code = dict(error.trailing_metadata() or ()).get("queuelake-code")


class GrpcClient:
    """`client.call("PurgeQueue", name="a")`, with a key or without one."""

    def __init__(self, port: int, key: str | None = None, roots: bytes | None = None) -> None:
        target = f"127.0.0.1:{port}"
        if roots is None:
            self.channel = grpc.insecure_channel(target, OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(roots)
            self.channel = grpc.secure_channel(target, credentials, OPTIONS)
        self.metadata = () if key is None else (("authorization", f"Bearer {key}"),)
        self.stub = queue_admin_pb2_grpc.QueueAdminStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def call(self, method: str, **fields: Any) -> Any:
        request = GetMessageClass(
            pb2.DESCRIPTOR.services_by_name["QueueAdmin"].methods_by_name[method].input_type
        )(**fields)
        try:
            return getattr(self.stub, method)(
                request, metadata=self.metadata, timeout=TIMEOUT_S, wait_for_ready=True
            )
        except grpc.RpcError as error:
            raise Refused(error) from None

    def raw(self, path: str, body: bytes = b"") -> bytes:
        """A call of any method, known or not."""
        try:
            answer = self.channel.stream_stream(path)(
                iter([body]), metadata=self.metadata, timeout=TIMEOUT_S
            )
            return bytes(next(answer, b""))
        except grpc.RpcError as error:
            raise Refused(error) from None


class Curl:
    """What grpcurl does: learn the services from the server, then call them."""

    def __init__(self, client: GrpcClient) -> None:
        self._client = client
        self._pool = descriptor_pool.DescriptorPool()

    def services(self) -> list[str]:
        answer = self._ask(list_services="*")
        return [service.name for service in answer.list_services_response.service]

    def describe(self, service: str) -> Any:
        """The descriptor of a service, made only of what the server says."""
        answer = self._ask(file_containing_symbol=service)
        for body in reversed(answer.file_descriptor_response.file_descriptor_proto):
            self._pool.Add(descriptor_pb2.FileDescriptorProto.FromString(body))
        return self._pool.FindServiceByName(service)

    def methods(self) -> Iterator[tuple[str, str]]:
        """Every method of every service: the service, and the path to call."""
        for service in self.services():
            for method in self.describe(service).methods:
                yield service, f"/{service}/{method.name}"

    def call(self, service: str, method: str, tree: dict[str, Any]) -> dict[str, Any]:
        found = self.describe(service).methods_by_name[method]
        request = json_format.ParseDict(tree, GetMessageClass(found.input_type)())
        body = self._client.raw(f"/{service}/{method}", request.SerializeToString())
        answer = GetMessageClass(found.output_type).FromString(body)
        return dict(json_format.MessageToDict(answer, preserving_proto_field_name=True))

    def _ask(self, **fields: str) -> Any:
        asked = reflection_pb2.ServerReflectionRequest(**fields)
        body = self._client.raw(REFLECTION, asked.SerializeToString())
        return reflection_pb2.ServerReflectionResponse.FromString(body)


def as_rest(message: Any) -> Any:
    """A message as REST would have shown it: every field, by its name there."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Struct":
        return json_format.MessageToDict(message)
    if name == "queuelake.v1.Property":
        return [message.name, message.value]
    shown = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        key = field.name.replace("_", "-") if field.name.startswith("dlq_") else field.name
        if field.name == "next_page_token":
            shown["next"] = value or None
        elif field.has_presence and not message.HasField(field.name) and not field.message_type:
            shown[key] = None
        elif field.message_type and field.message_type.GetOptions().map_entry:
            shown[key] = dict(value)
        elif field.is_repeated:
            shown[key] = [as_rest(one) if field.message_type else one for one in value]
        elif field.message_type:
            shown[key] = as_rest(value)
        else:
            shown[key] = base64.b64encode(value).decode() if isinstance(value, bytes) else value
    return shown
