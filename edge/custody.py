"""The packages of this device with whom its owner trusts, as the settings say."""

from __future__ import annotations

from collections.abc import Callable

from edge.packages.library import Library
from edge.packages.sources.address import RemoteRules
from edge.packages.trust import TrustedKeys
from edge.settings import EdgeSettings
from shared.errors import TrustError


def library_of(settings: EdgeSettings, warn: Callable[[TrustError], None]) -> Library:
    """`warn` is told of packages that pass only because the policy is `warn`.

    Raises:
        SettingsError: the trusted keys cannot be read.
    """
    trust = TrustedKeys(settings.trust_dir).trust(settings.trust.policy, warn)
    sources = settings.sources
    remote = RemoteRules(hub_url=sources.hub_url, allow_http=sources.allow_http, limit_bytes=sources.limit)
    return Library(settings.store_dir, trust, state=settings.trust_dir, remote=remote)
