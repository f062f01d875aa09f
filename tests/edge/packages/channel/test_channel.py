"""Channels over HTTP: what a device accepts, and every way in which an offer may be wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edge.packages.library import Library
from edge.packages.manifest import MODEL_FILE
from edge.packages.signing_key import SigningKey
from edge.packages.trust import NO_TRUST, TrustedKeys
from edge.packages.verification import verify
from shared.errors import (
    ChannelRejected,
    DigestMismatch,
    Downgrade,
    ModelCorrupt,
    NotFound,
    SettingsError,
    SourceUnavailable,
    TrustError,
    UntrustedKey,
)
from shared.testing.models import write_gguf

from .conftest import START, Device, Publisher, Server, trusting

Make = Callable[..., Device]


def test_the_latest_release_is_installed_with_its_signature(publisher: Publisher, device: Make) -> None:
    first = publisher.release(1)
    publisher.publish(first)
    follower = device()
    assert follower.pull().digest == first.digest
    second = publisher.release(2)
    state = publisher.publish(second)
    assert dict(state.releases) == {"small": 2}
    package = follower.pull()
    assert (package.digest, package.manifest.sequence) == (second.digest, 2)
    verified = verify(package, follower.trust)
    assert verified.signer is not None


def test_several_packages_and_an_unknown_name(publisher: Publisher, device: Make) -> None:
    publisher.publish(publisher.release(1), publisher.release(7, "other"))
    follower = device()
    assert follower.pull("other").manifest.sequence == 7
    with pytest.raises(NotFound):
        follower.pull("none")
    with pytest.raises(NotFound):
        follower.pull("../small")


def test_a_channel_of_keys_that_are_not_trusted_is_not_followed(publisher: Publisher, device: Make) -> None:
    publisher.publish(publisher.release(1))
    stranger = device(trust=trusting(SigningKey.generate()))
    with pytest.raises(UntrustedKey, match="signed the root"):
        stranger.pull()
    assert list((stranger.home / "channels").rglob("*.json")) == []
    assert device(trust=NO_TRUST).pull().manifest.sequence == 1


def test_an_expired_offer_is_refused_until_it_is_renewed(publisher: Publisher, device: Make) -> None:
    """Freeze: whoever keeps a device from newer metadata is found out when the old expires."""
    publisher.publish(publisher.release(1))
    follower = device(now=START + timedelta(days=15))
    with pytest.raises(ChannelRejected) as caught:
        follower.pull()
    assert caught.value.code == "channel_expired"
    publisher.now = START + timedelta(days=15)
    publisher.publish()
    assert follower.pull().manifest.sequence == 1


def test_an_older_offer_is_refused(publisher: Publisher, device: Make, tmp_path: Path) -> None:
    """Rollback: an old channel that was valid, served again."""
    publisher.publish(publisher.release(1))
    shutil.copytree(publisher.channel, tmp_path / "old")
    publisher.publish(publisher.release(2))
    follower = device()
    assert follower.pull().manifest.sequence == 2
    shutil.rmtree(publisher.channel / "metadata")
    shutil.copytree(tmp_path / "old" / "metadata", publisher.channel / "metadata")
    with pytest.raises(ChannelRejected) as caught:
        follower.pull()
    assert caught.value.code == "channel_rollback"


def test_a_device_without_a_clock_is_not_fooled_by_old_metadata(
    publisher: Publisher, device: Make, tmp_path: Path
) -> None:
    """The clock starts in 1970 at every boot; what the signed timestamp states is a floor under it."""
    publisher.publish(publisher.release(1))
    shutil.copytree(publisher.channel, tmp_path / "old")
    follower = device(now=datetime(1970, 1, 1, tzinfo=UTC))
    assert follower.pull().manifest.sequence == 1
    publisher.now = START + timedelta(days=60)
    publisher.publish()
    follower.pull()
    # Another channel of the same publisher, frozen long ago, would be valid in 1970; by the floor it is not.
    shutil.rmtree(follower.home / "channels")
    shutil.rmtree(publisher.channel / "metadata")
    shutil.copytree(tmp_path / "old" / "metadata", publisher.channel / "metadata")
    with pytest.raises(ChannelRejected) as caught:
        follower.pull()
    assert caught.value.code == "channel_expired"


def test_a_damaged_time_floor_is_no_licence(publisher: Publisher, device: Make) -> None:
    publisher.publish(publisher.release(1))
    follower = device()
    follower.pull()
    (follower.home / "trust" / "time-floor").chmod(0o644)
    (follower.home / "trust" / "time-floor").write_text("soon")
    with pytest.raises(SettingsError, match="time-floor"):
        follower.pull()


@pytest.mark.parametrize("role", ["timestamp", "1.snapshot", "1.targets"])
def test_metadata_that_was_changed_is_refused(publisher: Publisher, device: Make, role: str) -> None:
    publisher.publish(publisher.release(1))
    path = publisher.channel / "metadata" / f"{role}.json"
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"version": 1', b'"version": 2', 1).replace(b'"version":1', b'"version":2', 1))
    assert path.read_bytes() != raw
    with pytest.raises(ChannelRejected):
        device().pull()
    path.write_bytes(b"{}")
    with pytest.raises(ChannelRejected):
        device().pull()


@pytest.mark.parametrize(
    ("file", "longer", "refusal"),
    [
        (MODEL_FILE, False, DigestMismatch),
        (MODEL_FILE, True, ModelCorrupt),
        *(
            (file, longer, ChannelRejected)
            for file in ("manifest.json", "manifest.sig", "release.json")
            for longer in (0, 1)
        ),
    ],
)
def test_files_that_were_changed_are_refused_and_nothing_is_installed(
    publisher: Publisher, device: Make, file: str, longer: bool, refusal: type[TrustError]
) -> None:
    publisher.publish(publisher.release(1))
    (path,) = (publisher.channel / "targets").rglob(f"*.{file}")
    raw = bytearray(path.read_bytes())
    raw[-10] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(raw) + (b"x" * 1000 if longer else b""))
    follower = device()
    with pytest.raises(refusal):
        follower.pull()
    assert not (follower.home / "models" / "small" / "current").is_symlink()


def test_a_rotated_key_takes_over_and_the_old_one_ends(publisher: Publisher, device: Make) -> None:
    publisher.publish(publisher.release(1))
    old, new = publisher.key, SigningKey.generate()
    follower = device(trust=trusting(old, new))
    follower.pull()
    assert publisher.publish(new_key=new).root_version == 2
    publisher.key = new
    publisher.publish(publisher.release(2))
    assert follower.pull().manifest.sequence == 2
    # A new device that knows the new key alone begins at the root that this key has signed.
    assert device(trust=trusting(new)).pull().manifest.sequence == 2
    publisher.key = old
    with pytest.raises(SettingsError, match="not the one of this channel"):
        publisher.publish()


def test_packages_follow_a_rotation_too(publisher: Publisher, served: str, tmp_path: Path) -> None:
    """Nothing is added on the device: the trusted key has handed over, and what the new one signs is believed."""
    publisher.now = datetime.now(UTC)
    state, warned = tmp_path / "trust", list[TrustError]()
    owner = TrustedKeys(state).add(_written(tmp_path, publisher.key))

    def library() -> Library:
        return Library(tmp_path / "models", TrustedKeys(state).trust(None, warned.append), state=state)

    publisher.publish(publisher.release(1))
    assert library().pull(f"{served}#small").manifest.sequence == 1
    assert (TrustedKeys(state).all(), warned) == ((owner,), [])
    new = SigningKey.generate()
    publisher.publish(new_key=new)
    publisher.key = new
    publisher.publish(publisher.release(2))
    assert library().pull(f"{served}#small").manifest.sequence == 2
    signer = library().verify("small").signer
    assert signer is not None
    assert (signer.key_id, signer.name) == (new.key_id, f"owner-{new.key_id[:8]}")
    assert [problem.code for problem in warned] == ["key_handed_over"]
    assert library().roll_back("small").manifest.sequence == 1, "the old key's packages are still believed"
    library().pull(f"{served}#small")
    TrustedKeys(state).remove("owner")
    assert library().verify("small").package.manifest.sequence == 2
    assert len(warned) == 1


def test_a_channel_that_was_followed_before_any_key_was_trusted_hands_nothing_over(
    publisher: Publisher, served: str, tmp_path: Path
) -> None:
    """Its first root was taken as it was: its keys never become trusted ones."""
    publisher.now = datetime.now(UTC)
    state = tmp_path / "trust"
    publisher.publish(publisher.release(1))
    Library(tmp_path / "models", TrustedKeys(state).trust(None), state=state).pull(f"{served}#small")
    owner = TrustedKeys(state).add(_written(tmp_path, SigningKey.generate()))
    publisher.publish(publisher.release(2))
    with pytest.raises(UntrustedKey):
        Library(tmp_path / "models", TrustedKeys(state).trust(None), state=state).pull(f"{served}#small")
    assert TrustedKeys(state).all() == (owner,)


def _written(folder: Path, key: SigningKey) -> Path:
    return key.write(folder / "keys", "owner")[1]


def test_the_online_key_renews_and_cannot_release(publisher: Publisher, device: Make) -> None:
    publisher.online = SigningKey.generate()
    publisher.publish(publisher.release(1))
    publisher.now = START + timedelta(days=20)
    publisher.publish(offline=False)
    follower = device(now=publisher.now)
    assert follower.pull().manifest.sequence == 1
    with pytest.raises(SettingsError, match="takes the channel's own key"):
        publisher.publish(publisher.release(2), offline=False)
    assert follower.pull().manifest.sequence == 1


def test_a_release_that_is_not_newer_is_not_published(publisher: Publisher) -> None:
    newest = publisher.release(5)
    publisher.publish(newest)
    publisher.publish(newest)  # the same again is no other release
    other = Publisher(publisher.folder / "other", publisher.channel, key=publisher.key)
    other.folder.mkdir()
    for sequence in (4, 5):
        with pytest.raises(Downgrade, match="not newer than release 5"):
            other.publish(other.release(sequence) if sequence == 4 else _same_number(other))


def _same_number(publisher: Publisher) -> object:

    path = write_gguf(publisher.folder / "again.gguf", numbers={"general.number": 99})
    return publisher.library.import_path(path, "small", sequence=5, signing_key=publisher.key)


def test_a_broken_connection_is_continued_where_it_broke(publisher: Publisher, device: Make) -> None:
    publisher.publish(publisher.release(1))
    Server.cut_at = 70_000
    package = device().pull()
    verify(package, NO_TRUST)
    asked = [range_ for path, range_ in Server.requests if path.endswith(MODEL_FILE)]
    assert asked == [None, "bytes=65536-"]


def test_a_server_that_does_not_answer_is_one_clear_error(publisher: Publisher, device: Make) -> None:
    follower = device()
    with pytest.raises(SourceUnavailable, match="status 404"):  # nothing published yet
        follower.pull()
    follower.url = "http://127.0.0.1:9"
    with pytest.raises(SourceUnavailable, match="does not answer"):
        follower.pull()
