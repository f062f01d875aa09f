"""Copies for other devices and bundles for other tools."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edge.packages import openssf
from edge.packages.export import export
from edge.packages.library import Library
from edge.packages.package import Package
from edge.packages.progress import ignore
from edge.packages.signing_key import SigningKey
from shared.errors import DigestMismatch, SettingsError

Write = Callable[[int], Path]
Install = Callable[..., Package]
VERIFIER_VARIABLE = "ISTHMUS_TEST_MODEL_SIGNING"
"""Path of the `model_signing` program, where it is installed: it needs an environment of its own."""


def test_an_exported_package_is_installed_elsewhere_byte_for_byte(
    install: Install, small_model: Write, tmp_path: Path
) -> None:
    package = install(small_model(1))
    Library(tmp_path / "store").sign("small", SigningKey.generate())
    exported = export(package, tmp_path / "out" / "small", ignore)
    assert exported.bundle is None
    copy = Library(tmp_path / "elsewhere").pull(str(exported.folder))
    names = sorted(path.name for path in package.folder.iterdir())
    assert names == ["manifest.json", "manifest.sig", "model.gguf"]
    assert all((copy.folder / name).read_bytes() == (package.folder / name).read_bytes() for name in names)
    with pytest.raises(SettingsError, match="exists"):
        export(package, tmp_path / "out" / "small", ignore)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["small"]


def test_a_damaged_package_is_not_exported(install: Install, small_model: Write, tmp_path: Path) -> None:
    package = install(small_model(1))
    package.model_path.chmod(0o644)
    with package.model_path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    with pytest.raises(DigestMismatch):
        export(package, tmp_path / "out" / "small", ignore)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_bundle_states_every_file_and_is_signed(install: Install, small_model: Write, tmp_path: Path) -> None:
    _, private, public = openssf.generate(tmp_path, "ec")
    exported = export(install(small_model(1)), tmp_path / "out", ignore, private)
    assert exported.bundle is not None
    bundle = json.loads(exported.bundle.read_bytes())
    envelope = bundle["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    key = serialization.load_pem_public_key(public.read_bytes())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), encoded, ec.ECDSA(hashes.SHA256()))
    resources = json.loads(payload)["predicate"]["resources"]
    stated = {each["name"]: each["digest"] for each in resources}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in exported.folder.iterdir()}
    assert stated == found
    assert bundle["verificationMaterial"]["publicKey"]["hint"] == hashlib.sha256(public.read_bytes()).hexdigest()


def test_the_package_key_is_refused_for_a_bundle(install: Install, small_model: Write, tmp_path: Path) -> None:
    private, _ = SigningKey.generate().write(tmp_path, "ed")
    with pytest.raises(SettingsError, match="P-256"):
        export(install(small_model(1)), tmp_path / "out", ignore, private)
    assert not (tmp_path / "out").exists()


def test_the_tool_of_the_specification_verifies_a_bundle(install: Install, small_model: Write, tmp_path: Path) -> None:
    program = os.environ.get(VERIFIER_VARIABLE) or shutil.which("model_signing")
    if program is None:
        pytest.skip(f"model_signing is not installed; its path can be given in {VERIFIER_VARIABLE}")
    _, private, public = openssf.generate(tmp_path, "ec")
    exported = export(install(small_model(1)), tmp_path / "out", ignore, private)

    def verify() -> int:
        command = [program, "verify", "key", str(exported.folder), "--public_key", str(public), "--signature"]
        return subprocess.run([*command, str(exported.bundle)], capture_output=True, timeout=60, check=False).returncode

    assert verify() == 0
    (exported.folder / "extra").write_bytes(b"")
    assert verify() != 0
