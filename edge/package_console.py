"""What the commands on packages print: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from edge.console import MIB, print_facts, print_json, text_console
from edge.packages import signature
from edge.packages.channel.publish import ChannelState
from edge.packages.export import Exported
from edge.packages.library import Library
from edge.packages.manifest import Manifest
from edge.packages.package import Package
from edge.packages.progress import ProgressListener
from edge.packages.trust import TrustedKey
from shared.errors import NotFound, TrustError

_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Result:
    """How the verification of one name ended."""

    name: str
    digest: str | None = None
    signer: TrustedKey | None = None
    fault: TrustError | None = None


def verify_all(
    library: Library, name: str | None, *, check: Callable[[Package], None], progress: ProgressListener
) -> list[Result]:
    """Verify `name`, or everything; `check` is asked after each. A package that is refused does not end the others.

    Raises:
        NotFound: it, or anything at all, is not installed.
    """
    names = [name] if name is not None else list(library.survey())
    if not names:
        raise NotFound("No package is installed. Install one with: isthmus edge pull", param="name")
    results = []
    for each in names:
        try:
            verified = library.verify(each, progress=progress)
            check(verified.package)
        except TrustError as error:
            if name is not None:
                raise
            results.append(Result(each, fault=error))
        else:
            results.append(Result(each, verified.package.digest, verified.signer))
    return results


def show_verified(results: Sequence[Result], *, only_one: bool, as_json: bool) -> int:
    """A line for each package; the exit code of the first that was refused, else 0."""
    code = next((result.fault.exit_code for result in results if result.fault is not None), 0)
    if as_json:
        rows = [_result_row(result) for result in results]
        print_json(rows[0] if only_one else rows)
        return code
    for result in results:
        if result.fault is not None:
            text_console().print(f"{result.name} is refused: {result.fault.message}", markup=False)
        else:
            by = f"signed by {result.signer.name}" if result.signer else "no trusted signature"
            text_console().print(f"{result.name} is whole ({(result.digest or '')[:19]}…, {by}).", markup=False)
    return code


def _result_row(result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {"name": result.name, "digest": result.digest, "verified": result.fault is None}
    row["signer"] = _key_row(result.signer) if result.signer else None
    if result.fault is not None:
        row |= {
            "code": result.fault.code,
            "exit_code": result.fault.exit_code,
            "message": result.fault.message,
            "param": result.fault.param,
        }
    return row


def show_packages(packages: Mapping[str, Package | TrustError], *, as_json: bool) -> None:
    """A line for each package."""
    rows = [_row_of(name, package) for name, package in packages.items()]
    if as_json:
        print_json(rows)
        return
    table = Table("name", "architecture", "quantisation", "size", "trained context", "release", "digest", box=None)
    for row in rows:
        if "fault" in row:
            table.add_row(row["name"], f"damaged: {row['fault']}")
            continue
        table.add_row(
            row["name"],
            row["architecture"],
            row["quantisation"],
            f"{row['size_bytes'] / MIB:.1f} MiB",
            str(row["trained_context_tokens"]),
            str(row["sequence"]),
            row["digest"][:19],
        )
    text_console().print(table if rows else "No packages. Install one with: isthmus edge pull")


def _row_of(name: str, package: Package | TrustError) -> dict[str, Any]:
    if isinstance(package, TrustError):
        return {"name": name, "fault": package.code}
    model = package.manifest.model
    return {
        "name": name,
        "digest": package.digest,
        "format": model.format,
        "architecture": model.architecture,
        "quantisation": model.quantisation,
        "size_bytes": package.manifest.size_bytes,
        "trained_context_tokens": model.trained_context_tokens,
        "sequence": package.manifest.sequence,
    }


def show_package(library: Library, package: Package, *, as_json: bool) -> None:
    """Everything that is known of a package: its manifest, who signed it, where it lies, what came before."""
    trust = _vouching_of(library, package)
    before = _before(library, package.name)
    if as_json:
        installed = {"folder": str(package.folder), "previous_sequence": before.manifest.sequence if before else None}
        print_json({**package.manifest.model_dump(mode="json"), **trust, **installed})
        return
    manifest, model = package.manifest, package.manifest.model
    tokenizer, rope = model.tokenizer, model.rope
    print_facts(
        {
            **_row_of(package.name, package),
            "parameters": f"{model.parameters:,}",
            "weights": _weights(model.tensor_bytes) or None,
            "layers": model.geometry.layers,
            "tokenizer": f"{tokenizer.model}, pre-tokenizer {tokenizer.pre or 'not stated'}, {tokenizer.tokens} tokens",
            "special tokens": ", ".join(f"{name} {number}" for name, number in tokenizer.special_ids.items()),
            "chat template": (tokenizer.chat_template_sha256 or "none")[:_ID_DIGITS],
            "findings": ", ".join(tokenizer.findings) or None,
            "rope": ", ".join(f"{name} {value}" for name, value in rope.model_dump().items() if value is not None),
            "source": manifest.source,
            "license": manifest.license,
            "signed by": ", ".join(_signer_text(each) for each in trust["signatures"]) or "nobody",
            "trust": "trusted" if trust["signer"] else trust["refusal"] or "not asked for",
            "version before": f"release {before.manifest.sequence}" if before else None,
            "folder": package.folder,
        }
    )
    table = Table("file", "bytes", "sha256", box=None)
    for file in manifest.files:
        table.add_row(file.path, str(file.size_bytes), file.sha256)
    text_console().print(table)


def _before(library: Library, name: str) -> Package | None:
    try:
        return library.previous(name)
    except TrustError:  # damaged: nothing to go back to
        return None


def _vouching_of(library: Library, package: Package) -> dict[str, Any]:
    """Signatures, the trusted signer among them, and why the package would be refused now."""
    raw = signature.read(package.folder)
    key_ids = [each.key_id for each in signature.parse(raw).signatures] if raw is not None else []
    names = {key.key_id: key.name for key in library.trusted_keys}
    signer, refusal = None, None
    try:
        signer = library.vouched(package.name).signer
    except TrustError as error:
        refusal = error.code
    return {
        "signatures": [{"key_id": key_id, "name": names.get(key_id)} for key_id in key_ids],
        "signer": _key_row(signer) if signer else None,
        "refusal": refusal,
    }


def _signer_text(row: Mapping[str, Any]) -> str:
    short = row["key_id"][:_ID_DIGITS]
    return f"{row['name']} ({short})" if row["name"] else f"{short} (not trusted)"


def _weights(tensor_bytes: Mapping[str, Mapping[str, int]]) -> str:
    """Tensor types of each kind of weight, the largest kind first."""
    kinds = sorted(tensor_bytes.items(), key=lambda kind: -sum(kind[1].values()))
    return "; ".join(
        f"{kind} " + ", ".join(f"{name} {size / MIB:.1f} MiB" for name, size in sorted(types.items()))
        for kind, types in kinds
    )


def show_signed(manifest: Manifest, key_id: str, *, as_json: bool) -> None:
    """That a package was signed."""
    if as_json:
        row = {"name": manifest.name, "digest": manifest.digest, "sequence": manifest.sequence, "key_id": key_id}
        print_json(row)
    else:
        text_console().print(f"{manifest.name} release {manifest.sequence} is signed by {key_id[:_ID_DIGITS]}.")


def show_exported(exported: Exported, *, as_json: bool) -> None:
    """Where the copy is."""
    row = {"folder": str(exported.folder), "bundle": str(exported.bundle) if exported.bundle else None}
    if as_json:
        print_json(row)
    else:
        print_facts(row)


def show_key(key_id: str, private: Path, public: Path, *, as_json: bool) -> None:
    """Where a new key is, and which half may be given away."""
    if as_json:
        print_json({"key_id": key_id, "private": str(private), "public": str(public)})
        return
    print_facts({"key": key_id, "private, to be kept": private, "public, for devices": public})


def show_keys(keys: Iterable[TrustedKey], *, as_json: bool) -> None:
    """A line for each key."""
    rows = [_key_row(key) for key in keys]
    if as_json:
        print_json(rows)
        return
    table = Table("name", "key", box=None)
    for row in rows:
        table.add_row(row["name"], row["key_id"])
    text_console().print(table if rows else "No key is trusted. Trust one with: isthmus edge trust add FILE")


def show_channel(state: ChannelState, *, as_json: bool) -> None:
    """What a channel offers."""
    expires = state.expires.isoformat()
    if as_json:
        print_json(
            {
                "channel": str(state.folder),
                "root_version": state.root_version,
                "expires": expires,
                "releases": dict(state.releases),
            }
        )
        return
    table = Table("package", "release", box=None)
    for name, sequence in state.releases.items():
        table.add_row(name, str(sequence))
    text_console().print(table if state.releases else "The channel offers nothing yet.")
    text_console().print(f"Valid until {expires}; renew with: isthmus edge publish {state.folder}", markup=False)


def show_freed(freed_bytes: int, name: str | None, *, as_json: bool) -> None:
    """How much room was made."""
    if as_json:
        print_json({"name": name, "freed_bytes": freed_bytes})
    else:
        what = f"{name} was removed, " if name else ""
        text_console().print(f"{what}{freed_bytes / MIB:.1f} MiB freed.")


def _key_row(key: TrustedKey) -> dict[str, Any]:
    return {"name": key.name, "key_id": key.key_id}
