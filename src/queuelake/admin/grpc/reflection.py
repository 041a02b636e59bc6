"""The reflection service: programs such as grpcurl learn here what can be called.

The library has it as v1alpha. Version 1 is the same protocol under another name, which is all that
is different here, and what newer programs ask for first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

ALPHA = "grpc.reflection.v1alpha"
V1 = "grpc.reflection.v1"
NAMES = (f"{V1}.ServerReflection", f"{ALPHA}.ServerReflection")


def reflection_handlers(services: Sequence[str]) -> tuple[Any, ...]:
    """Handlers which tell about these services and about themselves."""
    _add_v1()
    servicer = reflection.aio.ReflectionServicer([*services, *NAMES])
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return tuple(
        grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler})
        for name in NAMES
    )


def _add_v1() -> None:
    """Describe version 1 to those who ask for it: the same file under the other name."""
    renamed = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(renamed)
    renamed.name = "grpc/reflection/v1/reflection.proto"
    renamed.package = V1
    for message in renamed.message_type:
        for field in message.field:
            if field.type_name:  # of another message
                field.type_name = field.type_name.replace(ALPHA, V1)
    for method in renamed.service[0].method:
        method.input_type = method.input_type.replace(ALPHA, V1)
        method.output_type = method.output_type.replace(ALPHA, V1)
    descriptor_pool.Default().AddSerializedFile(renamed.SerializeToString())
