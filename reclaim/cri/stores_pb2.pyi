from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[Kind]
    VIEW: _ClassVar[Kind]
    ACTIVE: _ClassVar[Kind]
    COMMITTED: _ClassVar[Kind]
UNKNOWN: Kind
VIEW: Kind
ACTIVE: Kind
COMMITTED: Kind

class Timestamp(_message.Message):
    __slots__ = ("seconds", "nanos")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    NANOS_FIELD_NUMBER: _ClassVar[int]
    seconds: int
    nanos: int
    def __init__(self, seconds: _Optional[int] = ..., nanos: _Optional[int] = ...) -> None: ...

class Namespace(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Namespaces(_message.Message):
    __slots__ = ("each",)
    EACH_FIELD_NUMBER: _ClassVar[int]
    each: _containers.RepeatedCompositeFieldContainer[Namespace]
    def __init__(self, each: _Optional[_Iterable[_Union[Namespace, _Mapping]]] = ...) -> None: ...

class Content(_message.Message):
    __slots__ = ("id", "size", "created_at", "updated_at", "labels", "target")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    id: str
    size: int
    created_at: Timestamp
    updated_at: Timestamp
    labels: _containers.ScalarMap[str, str]
    target: str
    def __init__(self, id: _Optional[str] = ..., size: _Optional[int] = ..., created_at: _Optional[_Union[Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[Timestamp, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., target: _Optional[str] = ...) -> None: ...

class Contents(_message.Message):
    __slots__ = ("each",)
    EACH_FIELD_NUMBER: _ClassVar[int]
    each: _containers.RepeatedCompositeFieldContainer[Content]
    def __init__(self, each: _Optional[_Iterable[_Union[Content, _Mapping]]] = ...) -> None: ...

class Ingest(_message.Message):
    __slots__ = ("created_at", "updated_at", "id", "size", "target", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    created_at: Timestamp
    updated_at: Timestamp
    id: str
    size: int
    target: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, created_at: _Optional[_Union[Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[Timestamp, _Mapping]] = ..., id: _Optional[str] = ..., size: _Optional[int] = ..., target: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Ingests(_message.Message):
    __slots__ = ("each",)
    EACH_FIELD_NUMBER: _ClassVar[int]
    each: _containers.RepeatedCompositeFieldContainer[Ingest]
    def __init__(self, each: _Optional[_Iterable[_Union[Ingest, _Mapping]]] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("id", "target", "kind", "created_at", "updated_at", "labels", "size")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    id: str
    target: str
    kind: Kind
    created_at: Timestamp
    updated_at: Timestamp
    labels: _containers.ScalarMap[str, str]
    size: int
    def __init__(self, id: _Optional[str] = ..., target: _Optional[str] = ..., kind: _Optional[_Union[Kind, str]] = ..., created_at: _Optional[_Union[Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[Timestamp, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., size: _Optional[int] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("snapshotter", "key")
    SNAPSHOTTER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    snapshotter: str
    key: str
    def __init__(self, snapshotter: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class Snapshots(_message.Message):
    __slots__ = ("each",)
    EACH_FIELD_NUMBER: _ClassVar[int]
    each: _containers.RepeatedCompositeFieldContainer[Snapshot]
    def __init__(self, each: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("size",)
    SIZE_FIELD_NUMBER: _ClassVar[int]
    size: int
    def __init__(self, size: _Optional[int] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ("id", "type")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: str
    def __init__(self, id: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("each",)
    EACH_FIELD_NUMBER: _ClassVar[int]
    each: _containers.RepeatedCompositeFieldContainer[Resource]
    def __init__(self, each: _Optional[_Iterable[_Union[Resource, _Mapping]]] = ...) -> None: ...

class Descriptor(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("name", "labels", "target", "created_at")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    labels: _containers.ScalarMap[str, str]
    target: Descriptor
    created_at: Timestamp
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., target: _Optional[_Union[Descriptor, _Mapping]] = ..., created_at: _Optional[_Union[Timestamp, _Mapping]] = ...) -> None: ...

class ImagesRequest(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, filters: _Optional[_Iterable[str]] = ...) -> None: ...

class Images(_message.Message):
    __slots__ = ("each",)
    EACH_FIELD_NUMBER: _ClassVar[int]
    each: _containers.RepeatedCompositeFieldContainer[Image]
    def __init__(self, each: _Optional[_Iterable[_Union[Image, _Mapping]]] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("labels", "snapshotter", "target")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTTER_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    snapshotter: str
    target: str
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ..., snapshotter: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class Containers(_message.Message):
    __slots__ = ("each",)
    EACH_FIELD_NUMBER: _ClassVar[int]
    each: _containers.RepeatedCompositeFieldContainer[Container]
    def __init__(self, each: _Optional[_Iterable[_Union[Container, _Mapping]]] = ...) -> None: ...

class Sandbox(_message.Message):
    __slots__ = ("labels",)
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Sandboxes(_message.Message):
    __slots__ = ("each",)
    EACH_FIELD_NUMBER: _ClassVar[int]
    each: _containers.RepeatedCompositeFieldContainer[Sandbox]
    def __init__(self, each: _Optional[_Iterable[_Union[Sandbox, _Mapping]]] = ...) -> None: ...
