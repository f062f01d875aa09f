"""How settings name the certificates of a program that calls others over TLS; the same fields in every section that has
them."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shared.http.tls import TlsFiles


class CertificateSettings(BaseModel):
    """What is shown to the other side of TLS, and whom to trust there, in PEM."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    ca_file: Path | None = Field(default=None, description="Authorities to trust besides those of the system.")
    cert_file: Path | None = Field(default=None, description="Certificate shown to the other side, for mutual TLS.")
    key_file: Path | None = Field(default=None, description="Its private key.")

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.cert_file is None) is not (self.key_file is None):
            raise ValueError("cert_file and key_file are set together")
        return self

    def files(self) -> TlsFiles:
        """The same for `shared.http.tls.ClientTls`."""
        return TlsFiles(self.cert_file, self.key_file, self.ca_file)
