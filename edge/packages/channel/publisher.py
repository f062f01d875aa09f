"""Publishing as an operator asks for it: keys from files, time from the clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from edge.packages.channel.offer import Lifetimes, PublisherKeys
from edge.packages.channel.publish import ChannelState, publish
from edge.packages.channel.trusted_time import system_now
from edge.packages.progress import ProgressListener, ignore
from edge.packages.signing_key import SigningKey
from shared.errors import SettingsError


def keys_in(offline: Path | None, online: Path | None) -> PublisherKeys:
    """The channel's keys; one of the two is enough.

    Raises:
        SettingsError: none is given, or one cannot be read.
    """
    key = SigningKey.read(offline) if offline is not None else None
    if online is not None:
        return PublisherKeys(online=SigningKey.read(online), offline=key)
    if key is None:
        raise SettingsError("Publishing takes the channel's key (--key), or --online-key to renew it.", param="key")
    return PublisherKeys(online=key, offline=key)


def publish_now(
    folder: Path,
    packages: Sequence[Path],
    keys: PublisherKeys,
    *,
    new_key: Path | None = None,
    valid_days: int = 14,
    progress: ProgressListener = ignore,
) -> ChannelState:
    """Publish with the system's clock; the offer must be renewed after `valid_days`. Raises as `publish`."""
    lifetimes = Lifetimes(online=timedelta(days=valid_days))
    successor = SigningKey.read(new_key) if new_key is not None else None
    return publish(folder, packages, keys, now=system_now(), lifetimes=lifetimes, new_key=successor, progress=progress)
