"""A kill at any step of any operation leaves packages whole: each child is killed one system call later."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.packages.channel.follow import Channel
from edge.packages.channel.transport import Transport, base_url_of
from edge.packages.channel.trusted_time import TrustedTime
from edge.packages.library import Library
from edge.packages.package import Package
from edge.packages.signing_key import SigningKey
from edge.packages.store import PackageStore
from edge.packages.trust import NO_TRUST
from edge.packages.verification import verify

Write = Callable[[int], Path]
Install = Callable[..., Package]

_DIE_AT = """
import functools, http.server, os, shutil, signal, sys, threading
from datetime import datetime, timezone
from pathlib import Path
from edge.packages.channel.offer import PublisherKeys
from edge.packages.channel.publish import publish
from edge.packages.installation import Origin
from edge.packages.library import Library
from edge.packages.signing_key import SigningKey
from edge.packages.store import PackageStore
from edge.packages.trust import NO_TRUST
from edge.packages.verification import verify

what, root, other = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

if what == "fetch":
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(other.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/{other.name}"

watched = ("write", "fsync", "open", "mkdir", "rename", "replace", "symlink", "unlink", "rmdir")
library = Library(root)

def install():
    with other.open("rb") as file, PackageStore(root).installation("small") as installation:
        installation.install(file, Origin(source="test", size_bytes=other.stat().st_size))

def operate():
    if what == "install":
        install()
    elif what == "import":
        library.import_path(other, "small")
    elif what == "fetch":
        library.pull(url, name="small")
    elif what == "follow":
        library.pull(f"{other}#small")
    elif what == "gc":
        library.collect()
    elif what == "rollback":
        library.roll_back("small")
    elif what == "sign":
        library.sign("small", SigningKey.read(other))
    elif what == "remove":
        library.remove("small")
    elif what == "publish":
        key = SigningKey.read(other)
        publish(root.parent / "channel", [library.show("small").folder], PublisherKeys(key, key),
                now=datetime.now(timezone.utc))

def litter():
    home = root / "small"
    shutil.copytree(home / "current", home / "versions" / "000000-0123456789abcdef", dirs_exist_ok=True)
    (home / "staging-left").mkdir(exist_ok=True)
    (home / "staging-left" / "model.gguf").write_bytes(b"x" * 100)
    (home / "partial-left.part").write_bytes(b"x" * 100)

steps = 0

def run(die_at):
    def counted(call):
        def step(*args, **kwargs):
            global steps
            steps += 1
            if steps == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)
        return step
    for name in watched:
        setattr(os, name, counted(getattr(os, name)))
    operate()

def state():
    names = library.survey()
    if not names:
        return "none"
    package = library.verify("small").package
    return package.folder.name + ("+sig" if (package.folder / "manifest.sig").exists() else "")

die_at = 0
while True:
    die_at += 1
    if what == "gc":
        litter()
    child = os.fork()
    if child == 0:
        run(die_at)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(die_at, os.WIFSIGNALED(status), state(), flush=True)
    if not os.WIFSIGNALED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    if what in ("rollback", "remove") and state() != sys.argv[4]:  # done before its end: start over from the same state
        print("done", flush=True)
        sys.exit(0)
"""


def killed_at_each_step(what: str, root: Path, other: Path, before: str = "") -> list[str]:
    """States after each kill; every one of them was verified by the child's parent."""
    run = subprocess.run(
        [sys.executable, "-c", _DIE_AT, what, str(root), str(other), before],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    killed = [line for line in lines if line[1:2] == ["True"]]
    assert killed, "nothing was interrupted"
    return [line[2] for line in lines if len(line) == 3]


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob("staging-*")]


def test_a_kill_at_any_step_leaves_a_whole_version(
    store: PackageStore, install: Install, small_model: Write, tmp_path: Path
) -> None:
    first = install(small_model(1))
    states = killed_at_each_step("install", tmp_path / "store", small_model(2))
    assert len(states) > 15, "the installation has fewer steps than this test means to interrupt"
    final = store.current("small")
    assert states[0] == first.folder.name
    # After every kill the current version was one of the two, whole: the new one only once it was complete.
    fingerprints = {name.rpartition("-")[2] for name in states}
    assert fingerprints == {package.folder.name.rpartition("-")[2] for package in (first, final)}
    verify(final, NO_TRUST)
    assert leftovers(tmp_path / "store") == []


@pytest.mark.parametrize("what", ["import", "fetch"])
def test_a_kill_while_importing_or_fetching_leaves_a_whole_version(
    install: Install, small_model: Write, tmp_path: Path, what: str
) -> None:
    """The version in use is the one before until the new one is whole; a transfer goes on where it was killed."""
    first = install(small_model(1))
    states = killed_at_each_step(what, tmp_path / "store", small_model(2))
    assert states[0] == first.folder.name
    final = Library(tmp_path / "store").verify("small").package
    fingerprints = {name.rpartition("-")[2] for name in states}
    assert fingerprints == {package.folder.name.rpartition("-")[2] for package in (first, final)}
    assert leftovers(tmp_path / "store") == []
    assert list((tmp_path / "store").rglob("partial-*")) == []


def test_a_kill_while_following_a_channel_leaves_the_release_before_or_the_new_one(
    small_model: Write, tmp_path: Path
) -> None:
    private, _ = SigningKey.generate().write(tmp_path, "key")
    publisher = Library(tmp_path / "elsewhere")
    _publish(tmp_path, publisher.import_path(small_model(1), "small", sequence=1), private)
    device = Library(tmp_path / "store")
    first = device.pull(f"{tmp_path / 'channel'}#small")
    _publish(tmp_path, publisher.import_path(small_model(2), "small", sequence=2), private)
    states = [
        name.removesuffix("+sig") for name in killed_at_each_step("follow", tmp_path / "store", tmp_path / "channel")
    ]
    assert states[0] == first.folder.name
    final = device.verify("small").package
    assert final.manifest.sequence == 2
    fingerprints = {name.rpartition("-")[2] for name in states}
    assert fingerprints == {package.folder.name.rpartition("-")[2] for package in (first, final)}
    assert leftovers(tmp_path / "store") == []


def test_a_kill_while_collecting_takes_nothing_that_is_in_use(
    install: Install, small_model: Write, tmp_path: Path
) -> None:
    before, package = install(small_model(1)), install(small_model(2))
    states = killed_at_each_step("gc", tmp_path / "store", tmp_path)
    assert set(states) == {package.folder.name}
    library = Library(tmp_path / "store")
    assert library.previous("small") == before
    versions = tmp_path / "store" / "small" / "versions"
    assert {path.name for path in versions.iterdir()} == {before.folder.name, package.folder.name}
    assert leftovers(tmp_path / "store") == []


def test_a_kill_while_rolling_back_leaves_one_of_the_two(install: Install, small_model: Write, tmp_path: Path) -> None:
    first, second = install(small_model(1)), install(small_model(2))
    states = killed_at_each_step("rollback", tmp_path / "store", tmp_path, second.folder.name)
    assert set(states) == {first.folder.name, second.folder.name}
    assert states[-1] == first.folder.name


def test_a_kill_while_signing_leaves_the_package_whole(install: Install, small_model: Write, tmp_path: Path) -> None:
    package = install(small_model(1))
    private, _ = SigningKey.generate().write(tmp_path, "key")
    states = killed_at_each_step("sign", tmp_path / "store", private)
    assert states[0] == package.folder.name
    assert states[-1] == f"{package.folder.name}+sig"
    assert leftovers(tmp_path / "store") == []


def test_a_kill_while_removing_leaves_all_or_nothing(install: Install, small_model: Write, tmp_path: Path) -> None:
    package = install(small_model(1))
    states = killed_at_each_step("remove", tmp_path / "store", tmp_path, package.folder.name)
    assert set(states) == {package.folder.name, "none"}
    Library(tmp_path / "store").collect()
    assert list((tmp_path / "store" / "small" / "versions").iterdir()) == []
    assert leftovers(tmp_path / "store") == []


@pytest.mark.parametrize("again", [False, True])
def test_a_kill_while_publishing_leaves_an_offer_that_can_be_followed(
    install: Install, small_model: Write, tmp_path: Path, again: bool
) -> None:
    install(small_model(1))
    private, _ = SigningKey.generate().write(tmp_path, "key")
    if again:  # over a channel that offers something else already
        library = Library(tmp_path / "elsewhere")
        other = library.import_path(small_model(2), "other")
        _publish(tmp_path, other, private)
    killed_at_each_step("publish", tmp_path / "store", private)
    channel = Channel(
        base_url_of(str(tmp_path / "channel")),
        tmp_path / "state",
        NO_TRUST,
        TrustedTime(tmp_path / "state"),
        Transport(),
    )
    follower = Library(tmp_path / "device")
    for name in ("small", "other") if again else ("small",):
        channel.latest(name)
        package = follower.pull(f"{tmp_path / 'channel'}#{name}")
        assert package.name == name
    assert leftovers(tmp_path / "channel") == []


def _publish(tmp_path: Path, package: Package, private: Path) -> None:
    from edge.packages.channel.publisher import keys_in, publish_now

    publish_now(tmp_path / "channel", [package.folder], keys_in(private, None))
