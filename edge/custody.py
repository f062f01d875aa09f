"""Whom the owner of this device trusts, and the package that it may therefore serve."""

from __future__ import annotations

from collections.abc import Callable

from edge.packages.adapters.store import AdapterStore
from edge.packages.package import Package
from edge.packages.store import PackageStore
from edge.packages.trust import Trust, TrustedKeys
from edge.packages.verification import vouched
from edge.settings import EdgeSettings
from shared.errors import TrustError


def trust_of(settings: EdgeSettings, warn: Callable[[TrustError], None]) -> Trust:
    """`warn` is told of packages that pass only because the policy is `warn`.

    Raises:
        SettingsError: the trusted keys cannot be read.
    """
    return TrustedKeys(settings.trust_dir).trust(settings.trust.policy, warn)


def adapters_of(settings: EdgeSettings, warn: Callable[[TrustError], None]) -> AdapterStore:
    """The registered adapters; they are vouched for as packages are. Raises as `trust_of`."""
    return AdapterStore(settings.adapters_dir, trust_of(settings, warn))


def package_to_serve(settings: EdgeSettings, warn: Callable[[TrustError], None]) -> Package:
    """The installed package that `settings` name, its file set and signature checked; its bytes are at each start.

    Sources and channels are no part of this: an agent that serves never fetches.

    Raises:
        NotFound: it is not installed.
        TrustError: files or signature are not right, or nobody who is trusted vouches.
        SettingsError: the trusted keys cannot be read.
    """
    trust = trust_of(settings, warn)
    package = PackageStore(settings.store_dir, trust).current(settings.model)
    vouched(package, trust)
    return package
