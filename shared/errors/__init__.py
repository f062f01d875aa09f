"""The one exception tree of Isthmus: what went wrong, whose fault it is, and what a client is told.

    IsthmusError
    ├── ClientError            the request is at fault: 4xx, never retried, never opens a breaker
    │   ├── InvalidRequest 400  ├── ContextLengthExceeded 400  ├── Unauthenticated 401  ├── Forbidden 403
    │   ├── PolicyBlocked 403  ├── NotFound 404  ├── MethodNotAllowed 405  ├── OutOfOrder 409  ├── PayloadTooLarge 413
    │   └── UnsupportedMediaType 415, ExpectationFailed 417
    ├── CapacityError          nothing is at fault, there is no room now: 503 + Retry-After
    │   ├── NoCapacity  ├── PrivacyUnavailable  ├── QueueFull  ├── NotReady  ├── Draining
    │   └── RateLimited, Overloaded 429: a quota is used up, the replicas of one model are busy
    ├── BackendError           a backend failed: 502 or 504
    │   ├── BackendUnreachable  ├── BackendTimeout  ├── BackendStatus  └── StreamBroken
    ├── TrustError             bytes that nobody vouched for, or that are not what they claim to be
    │   ├── ModelCorrupt  ├── UnsupportedArchitecture  ├── UnsupportedFormat  ├── NotABaseModel  ├── DigestMismatch
    │   ├── FileMissing  ├── FileUnexpected  ├── LinkRefused  ├── Downgrade  ├── UntrustedKey  ├── Unsigned
    │   └── SignatureInvalid, ChannelRejected, TokenizerMismatch, AdapterRejected
    ├── PackageInUse, SourceUnavailable    a package is held by a running program, or could not be fetched
    ├── StateUnavailable       a store does not answer; callers go on with what they last knew
    │   └── StateRefused           it answers, and refuses: it is full, or a replica
    ├── StartFailed            a started program ended or never became ready
    └── SettingsError          the operator's configuration or machine is at fault
        └── InsufficientMemory    the plan needs more memory than is free

One file for each way of being at fault: `client`, `capacity`, `backend`, `package`, and `operation` for stores,
programs and settings. Every error is picklable (it crosses Ray and multiprocessing boundaries) and holds no prompt
text, key or matched value: `param` names the field at fault, never its value.
"""

from __future__ import annotations

from shared.errors.backend import BackendError, BackendStatus, BackendTimeout, BackendUnreachable, StreamBroken
from shared.errors.base import IsthmusError
from shared.errors.capacity import (
    CapacityError,
    Draining,
    NoCapacity,
    NotReady,
    Overloaded,
    PrivacyUnavailable,
    QueueFull,
    RateLimited,
)
from shared.errors.client import (
    ClientError,
    ContextLengthExceeded,
    ExpectationFailed,
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    OutOfOrder,
    PayloadTooLarge,
    PolicyBlocked,
    Unauthenticated,
    UnsupportedMediaType,
)
from shared.errors.operation import InsufficientMemory, SettingsError, StartFailed, StateRefused, StateUnavailable
from shared.errors.package import (
    AdapterRejected,
    ChannelRejected,
    DigestMismatch,
    Downgrade,
    FileMissing,
    FileUnexpected,
    LinkRefused,
    ModelCorrupt,
    NotABaseModel,
    PackageInUse,
    SignatureInvalid,
    SourceUnavailable,
    TokenizerMismatch,
    TrustError,
    Unsigned,
    UnsupportedArchitecture,
    UnsupportedFormat,
    UntrustedKey,
)

__all__ = [
    "AdapterRejected",
    "BackendError",
    "BackendStatus",
    "BackendTimeout",
    "BackendUnreachable",
    "CapacityError",
    "ChannelRejected",
    "ClientError",
    "ContextLengthExceeded",
    "DigestMismatch",
    "Downgrade",
    "Draining",
    "ExpectationFailed",
    "FileMissing",
    "FileUnexpected",
    "Forbidden",
    "InsufficientMemory",
    "InvalidRequest",
    "IsthmusError",
    "LinkRefused",
    "MethodNotAllowed",
    "ModelCorrupt",
    "NoCapacity",
    "NotABaseModel",
    "NotFound",
    "NotReady",
    "OutOfOrder",
    "Overloaded",
    "PackageInUse",
    "PayloadTooLarge",
    "PolicyBlocked",
    "PrivacyUnavailable",
    "QueueFull",
    "RateLimited",
    "SettingsError",
    "SignatureInvalid",
    "SourceUnavailable",
    "StartFailed",
    "StateRefused",
    "StateUnavailable",
    "StreamBroken",
    "TokenizerMismatch",
    "TrustError",
    "Unauthenticated",
    "Unsigned",
    "UnsupportedArchitecture",
    "UnsupportedFormat",
    "UnsupportedMediaType",
    "UntrustedKey",
]
