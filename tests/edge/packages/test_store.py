"""Installation: all or nothing, whatever happens in the middle of it."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.packages import durable
from edge.packages.installation import Origin
from edge.packages.manifest import read_manifest
from edge.packages.package import FileIdentity, Package, check_contents, check_file, opened_package
from edge.packages.progress import Progress, Step
from edge.packages.store import PackageStore
from edge.packages.versions import Versions
from shared.errors import DigestMismatch, InvalidRequest, ModelCorrupt, NotFound, SettingsError, TrustError

Write = Callable[[int], Path]
Install = Callable[..., Package]


def verify(package: Package) -> None:
    with opened_package(package) as files:
        check_contents(package, files)
        for file in package.manifest.files:
            check_file(file, files.descriptor(file.path))


def leftovers(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "store").rglob("staging-*")]


def test_an_installed_package_is_current_verified_and_read_only(
    store: PackageStore, install: Install, small_model: Write
) -> None:
    package = install(small_model(1))
    assert store.current("small") == package
    assert store.names() == ("small",)
    assert read_manifest(package.folder) == package.manifest
    assert package.manifest.geometry.layers == 2
    assert package.model_path.stat().st_mode & 0o222 == 0
    verify(package)


def test_the_version_before_is_kept_and_older_ones_go(install: Install, small_model: Write, tmp_path: Path) -> None:
    packages = [install(small_model(number)) for number in (1, 2, 3)]
    home = tmp_path / "store" / "small"
    assert [path.name for path in sorted((home / "versions").iterdir())] == [p.folder.name for p in packages[1:]]
    assert (home / "previous").readlink() == Path("versions") / packages[1].folder.name


def test_installing_the_same_bytes_again_keeps_the_version_before(
    install: Install, small_model: Write, tmp_path: Path
) -> None:
    first = install(small_model(1))
    install(small_model(2))
    repaired = install(small_model(2))
    verify(repaired)
    assert (tmp_path / "store" / "small" / "previous").readlink().name == first.folder.name


def test_a_copy_of_the_store_that_followed_its_links_is_installed_over_and_can_be_removed(
    store: PackageStore, install: Install, small_model: Write, tmp_path: Path
) -> None:
    """Folders stand in the place of the links, as `cp -rL` and some backups leave them."""
    home = tmp_path / "store" / "small"
    first, second = install(small_model(1)), install(small_model(2))

    def follow_links() -> None:
        for link in (home / "current", home / "previous"):
            if link.is_symlink():
                held = link.resolve()
                link.unlink()
                shutil.copytree(held, link)

    follow_links()
    with pytest.raises(NotFound):
        store.current("small")
    repaired = install(small_model(2))
    assert repaired.digest == second.digest
    assert store.current("small") == repaired
    verify(repaired)
    assert install(small_model(1)).digest == first.digest
    follow_links()
    assert Versions(home).remove() > 0
    assert list((home / "versions").iterdir()) == []
    assert not (home / "current").exists()
    assert not (home / "previous").exists()
    assert leftovers(tmp_path) == []


def test_bytes_that_are_not_the_pinned_ones_change_nothing(
    store: PackageStore, install: Install, small_model: Write, tmp_path: Path
) -> None:
    first = install(small_model(1))
    with pytest.raises(DigestMismatch):
        install(small_model(2), sha256="0" * 64)
    assert store.current("small") == first
    assert leftovers(tmp_path) == []


def test_gg_03_a_refused_file_leaves_the_version_before_active(
    store: PackageStore, install: Install, small_model: Write, tmp_path: Path
) -> None:
    first = install(small_model(1))
    broken = small_model(2)
    os.truncate(broken, broken.stat().st_size - 1)
    with pytest.raises(ModelCorrupt):
        install(broken)
    assert store.current("small") == first
    verify(first)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("claimed", [-1, 1])
def test_a_source_that_gives_more_or_less_than_it_said_is_refused(
    store: PackageStore, small_model: Write, claimed: int
) -> None:
    path = small_model(1)
    origin = Origin(source="test", size_bytes=path.stat().st_size + claimed)
    with path.open("rb") as file, store.installation("small") as installation, pytest.raises(ModelCorrupt):
        installation.install(file, origin)
    assert store.names() == ()


def test_installations_of_one_name_wait_for_each_other(
    store: PackageStore, install: Install, small_model: Write, tmp_path: Path
) -> None:
    paths = [small_model(number) for number in range(4)]
    steps: list[Step] = []
    inside = 0
    most_inside = 0

    def watch(progress: Progress) -> None:
        nonlocal inside, most_inside
        steps.append(progress.step)
        if progress.step is Step.CHECK:
            inside += 1
            most_inside = max(most_inside, inside)
        elif progress.step is Step.ACTIVATE:
            inside -= 1

    threads = [threading.Thread(target=install, args=(path,), kwargs={"progress": watch}) for path in paths]
    with store.installation("small"):
        for thread in threads:
            thread.start()
        while steps.count(Step.WAIT) < len(threads):
            threads[0].join(0.01)
    for thread in threads:
        thread.join(60)
    assert most_inside == 1
    assert steps.count(Step.ACTIVATE) == 4
    verify(store.current("small"))
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "fsync", "mkdir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_clear_error_and_changes_nothing(
    store: PackageStore,
    install: Install,
    small_model: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
) -> None:
    first = install(small_model(1))
    second = small_model(2)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, _raising(OSError(number, os.strerror(number))))
        with pytest.raises(SettingsError) as caught:
            install(second)
    assert caught.value.code == "disk_full"
    assert "\n" not in caught.value.message
    assert store.current("small") == first
    verify(first)
    assert leftovers(tmp_path) == []


def _raising(error: OSError) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    return fail


def test_too_little_room_is_refused_before_anything_is_written(
    install: Install, small_model: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_model(1)
    usage = durable.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(durable.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(SettingsError, match="1000 are free") as caught:
        install(path)
    assert caught.value.code == "disk_full"
    assert leftovers(tmp_path) == []


def test_changes_in_place_are_found(install: Install, small_model: Write) -> None:
    package = install(small_model(1))
    package.model_path.chmod(0o644)
    with package.model_path.open("r+b") as file:
        identity = FileIdentity.of(file.fileno())
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
        file.flush()
        assert FileIdentity.of(file.fileno()) != identity
    with pytest.raises(DigestMismatch):
        verify(package)
    os.truncate(package.model_path, 100)
    with pytest.raises(ModelCorrupt):
        verify(package)


def test_a_link_in_the_place_of_the_model_is_not_followed(install: Install, small_model: Write, tmp_path: Path) -> None:
    package = install(small_model(1))
    elsewhere = tmp_path / "elsewhere.gguf"
    package.model_path.rename(elsewhere)
    package.model_path.symlink_to(elsewhere)
    with pytest.raises(TrustError):
        verify(package)


def test_a_manifest_that_was_changed_is_refused(store: PackageStore, install: Install, small_model: Write) -> None:
    package = install(small_model(1))
    manifest = package.folder / "manifest.json"
    text = manifest.read_text()
    manifest.chmod(0o644)
    manifest.write_text(text.replace('"trained_context_tokens": 2048', '"trained_context_tokens": 4096'))
    with pytest.raises(DigestMismatch, match="was changed since it was installed"):
        store.current("small")
    manifest.write_text("{}")
    with pytest.raises(DigestMismatch):
        store.current("small")
    manifest.unlink()
    with pytest.raises(ModelCorrupt):
        store.current("small")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", "a" * 65, "a\n", "ä"])
def test_names_that_are_paths_are_refused(store: PackageStore, name: str) -> None:
    with pytest.raises(InvalidRequest):
        store.current(name)
    with pytest.raises(InvalidRequest), store.installation(name):
        pass


def test_what_is_not_installed_is_not_found(store: PackageStore) -> None:
    assert store.names() == ()
    with pytest.raises(NotFound):
        store.current("absent")
