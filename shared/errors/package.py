"""A package is not what it claims to be, is in use, or could not be fetched: nothing of it was loaded or changed."""

from __future__ import annotations

from shared.errors.base import IsthmusError


class TrustError(IsthmusError):
    """A package is not what it claims to be; nothing of it was loaded."""

    default_code = "untrusted"
    exit_code = 10


class ModelCorrupt(TrustError):
    """Structure or size contradicts the file's own header."""

    default_code = "model_corrupt"
    exit_code = 10


class UnsupportedArchitecture(TrustError):
    """The file is whole, but no engine here runs this architecture."""

    default_code = "unsupported_architecture"
    exit_code = 11


class UnsupportedFormat(TrustError):
    """The file is of a version, byte order or quantisation that nothing here reads; it need not be damaged."""

    default_code = "unsupported_format"
    exit_code = 26


class NotABaseModel(TrustError):
    """An adapter or a vocabulary file was offered as a model."""

    default_code = "not_a_base_model"
    exit_code = 12


class DigestMismatch(TrustError):
    """The bytes do not hash to the digest that was pinned for them."""

    default_code = "digest_mismatch"
    exit_code = 13


class FileMissing(TrustError):
    """A file that the manifest states is not there."""

    default_code = "file_missing"
    exit_code = 14


class FileUnexpected(TrustError):
    """There is a file that the manifest does not state, or that is no regular file."""

    default_code = "file_unexpected"
    exit_code = 15


class LinkRefused(TrustError):
    """A package holds a symbolic link: what it leads to can change without the package."""

    default_code = "link_refused"
    exit_code = 16


class Downgrade(TrustError):
    """The release is older than the one installed, or its number stands for other bytes."""

    default_code = "downgrade"
    exit_code = 17


class UntrustedKey(TrustError):
    """The package is signed, by keys that are not trusted here."""

    default_code = "untrusted_key"
    exit_code = 18


class Unsigned(TrustError):
    """The package is not signed, and a signature is asked for."""

    default_code = "unsigned"
    exit_code = 19


class SignatureInvalid(TrustError):
    """A signature is not over the bytes it stands beside."""

    default_code = "signature_invalid"
    exit_code = 20


class ChannelRejected(TrustError):
    """A release channel's metadata is expired, older than what was seen, or not signed by its keys."""

    default_code = "channel_rejected"
    exit_code = 21


class TokenizerMismatch(TrustError):
    """Packages of one model on two tiers turn text into tokens differently."""

    default_code = "tokenizer_mismatch"
    exit_code = 22


class AdapterRejected(TrustError):
    """An adapter is none, or none for its base model; `code` says which."""

    status = 400
    type = "invalid_request_error"
    default_code = "adapter_rejected"
    exit_code = 25


_REJECTIONS = ("base_mismatch", "not_an_adapter", "not_finite", "rank_too_high", "tensor_mismatch", "unsupported")
"""Codes of what is whole, and no adapter for its base."""


def refused_as(code: str) -> type[TrustError] | None:
    """The class of what another process refused with this code, so that its refusal ends a command as one of this
    process does; None: it is no refusal of a package."""
    if code in _REJECTIONS:
        return AdapterRejected
    kinds: list[type[TrustError]] = [TrustError, *TrustError.__subclasses__()]
    return next((kind for kind in kinds if kind.default_code == code), None)


class PackageInUse(IsthmusError):
    """A running program uses the package; it was not removed."""

    status = 409
    default_code = "package_in_use"
    exit_code = 23


class SourceUnavailable(IsthmusError):
    """A package could not be fetched from where it is kept; nothing was installed."""

    status = 502
    default_code = "source_unavailable"
    exit_code = 24
