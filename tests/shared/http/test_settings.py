"""Certificates as settings name them: half a pair is refused before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from shared.http.settings import CertificateSettings
from shared.http.tls import TlsFiles


@pytest.mark.parametrize("half", ["cert_file", "key_file"])
def test_a_certificate_without_its_key_is_refused(half: str) -> None:
    with pytest.raises(ValidationError, match="cert_file and key_file are set together"):
        CertificateSettings.model_validate({half: "one.pem"})


def test_files_are_named_as_they_were_given() -> None:
    given = CertificateSettings(ca_file=Path("ca"), cert_file=Path("cert"), key_file=Path("key"))
    assert given.files() == TlsFiles(Path("cert"), Path("key"), Path("ca"))
    assert CertificateSettings().files() == TlsFiles()
