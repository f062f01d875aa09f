"""How settings name the Redis that routers and devices share; the same fields in every section that has one."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from shared.secret_files import secret_in
from shared.state.address import RedisAddress, RedisTls


class RedisTlsSettings(BaseModel):
    """Certificates for Redis over TLS, in PEM; new connections use what the files hold now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ca_file: Path | None = Field(default=None, description="Authorities to trust; unset: those of the system.")
    cert_file: Path | None = Field(default=None, description="Certificate shown to Redis, for mutual TLS.")
    key_file: Path | None = Field(default=None, description="Its private key.")


class RedisSettings(BaseModel):
    """The Redis that several routers read the fleet from."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    url: str | None = Field(
        default=None,
        max_length=4096,
        description="Redis address as a URL; wins over host and port: redis://, unix://, redis+sentinel://A,B/MASTER, "
        "redis+cluster://A,B; rediss… with TLS.",
    )
    host: str = Field("127.0.0.1", min_length=1, description="Host of Redis.")
    port: int = Field(6379, ge=1, le=65535, description="Port of Redis.")
    username: str | None = Field(default=None, description="ACL user of Redis; unset: the default user.")
    password_file: Path | None = Field(default=None, description="File with the password of Redis.")
    sentinel_password_file: Path | None = Field(default=None, description="File with the password of the sentinels.")
    tls: RedisTlsSettings | None = Field(default=None, description="TLS to Redis; unset: as the URL says.")
    fleet: str = Field(
        "fleet",
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$",
        description="Name of the fleet in Redis: routers of one name share devices, keys and limits.",
    )

    def address(self, section: str) -> RedisAddress:
        """Where it is, passwords read; `section` is where these settings stand, as in `router.state`.

        Raises:
            SettingsError: a file with a password cannot be read, or holds something else.
        """
        return RedisAddress(
            url=self.url,
            host=self.host,
            port=self.port,
            username=self.username,
            password=secret_in(self.password_file, f"{section}.password_file"),
            sentinel_password=secret_in(self.sentinel_password_file, f"{section}.sentinel_password_file"),
            tls=None if self.tls is None else RedisTls(self.tls.ca_file, self.tls.cert_file, self.tls.key_file),
        )
