"""Packages from the command line: each kind of refusal has its own message and exit code, and changes nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.packages.lease import lease
from shared import cli
from shared.errors import IsthmusError, TrustError
from shared.settings import home
from shared.testing.models import write_gguf

Isthmus = Callable[..., tuple[int, str, str]]


@pytest.fixture
def isthmus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Isthmus:
    """Run `isthmus edge …` in a home of its own, in this process: exit code, output, errors."""
    from importlib.metadata import EntryPoint

    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    point = EntryPoint("edge", "edge.cli:app", cli.COMMAND_GROUP)
    monkeypatch.setattr(cli, "_contributed", lambda: {"edge": point})

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["edge", *arguments])
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, captured.out, captured.err

    return run


@pytest.fixture
def model(tmp_path: Path) -> Callable[[int], str]:
    """A function that writes a small model; another number gives other bytes."""

    def write(number: int) -> str:
        return str(write_gguf(tmp_path / f"model-{number}.gguf", numbers={"general.number": number}))

    return write


@pytest.fixture
def trusted(isthmus: Isthmus) -> str:
    """The file of a key that this device trusts."""
    assert isthmus("keygen", "owner")[0] == 0
    assert isthmus("trust", "add", "owner.pub")[0] == 0
    return "owner.key"


def installed_file(name: str, file: str = "model.gguf") -> Path:
    return home() / "models" / name / "current" / file


def refused(ended: tuple[int, str, str], code: int, words: str) -> None:
    assert ended[0] == code, ended
    assert ended[1] == ""
    assert ended[2].startswith("error: ")
    assert ended[2].count("\n") == 1
    assert re.search(words, ended[2]), ended[2]


def flip(path: Path, offset: int = -1, mask: int = 1) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        (value,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([value ^ mask]))


def test_no_two_causes_share_an_exit_code() -> None:
    def below(cls: type[IsthmusError]) -> list[type[IsthmusError]]:
        return [each for child in cls.__subclasses__() for each in (child, *below(child))]

    codes = [each.exit_code for each in below(TrustError)]
    assert len(codes) == len(set(codes))
    assert set(codes) <= set(range(10, 27))


@pytest.mark.parametrize("offset", [0, 8, 1000, -1, -5000])
@pytest.mark.parametrize("mask", [1, 128])
def test_one_flipped_bit_is_refused(isthmus: Isthmus, model: Callable[[int], str], offset: int, mask: int) -> None:
    assert isthmus("import", model(1), "--name", "m")[0] == 0
    flip(installed_file("m"), offset, mask)
    refused(isthmus("verify", "m"), 13, "does not hash to")


def test_one_flipped_bit_in_a_manifest_is_refused_signed_or_not(isthmus: Isthmus, model: Callable[[int], str]) -> None:
    assert isthmus("import", model(1), "--name", "m")[0] == 0
    flip(installed_file("m", "manifest.json"), 40)
    refused(isthmus("verify", "m"), 13, "manifest.json was changed")
    code, out, _ = isthmus("list", "--json")
    assert (code, json.loads(out)) == (0, [{"name": "m", "fault": "digest_mismatch"}])
    assert isthmus("rm", "m")[0] == 0


def test_a_missing_file_an_extra_file_and_a_link_are_refused(
    isthmus: Isthmus, model: Callable[[int], str], tmp_path: Path
) -> None:
    assert isthmus("import", model(1), "--name", "m")[0] == 0
    extra = installed_file("m", "extra.bin")
    extra.write_bytes(b"x")
    refused(isthmus("verify", "m"), 15, "extra.bin is not in the manifest")
    refused(isthmus("serve", "--model", "m", "--port", "0"), 15, "extra.bin")
    extra.unlink()
    file = installed_file("m")
    file.rename(tmp_path / "elsewhere")
    refused(isthmus("verify", "m"), 14, "model.gguf is missing")
    file.symlink_to(tmp_path / "elsewhere")
    refused(isthmus("verify", "m"), 16, "symbolic link")
    file.unlink()
    (tmp_path / "elsewhere").rename(file)
    assert isthmus("verify", "m")[0] == 0


def test_a_package_folder_with_such_faults_is_not_installed(
    isthmus: Isthmus, model: Callable[[int], str], tmp_path: Path
) -> None:
    assert isthmus("import", model(1), "--name", "m")[0] == 0
    folder = tmp_path / "m"
    installed_file("m").parent.resolve().rename(folder)
    assert isthmus("rm", "m")[0] == 0
    (folder / "more").mkdir()
    (folder / "more" / "x").write_bytes(b"")
    refused(isthmus("pull", f"{folder}"), 15, "more/x is not in the manifest")
    (folder / "more" / "x").unlink()
    (folder / "link").symlink_to("/etc/passwd")
    refused(isthmus("pull", f"{folder}"), 16, "link is a symbolic link")
    (folder / "link").unlink()
    flip(folder / "model.gguf")
    refused(isthmus("pull", f"{folder}"), 13, "model.gguf")
    flip(folder / "model.gguf")
    (folder / "model.gguf").rename(tmp_path / "away")
    refused(isthmus("pull", f"{folder}"), 14, "model.gguf is missing")
    (tmp_path / "away").rename(folder / "model.gguf")
    assert json.loads(isthmus("list", "--json")[1]) == []
    assert isthmus("pull", f"{folder}")[0] == 0
    assert isthmus("verify", "m")[0] == 0
    flip(folder / "model.gguf")  # what is offered is judged also where the same release is installed and whole
    refused(isthmus("pull", f"{folder}"), 13, "model.gguf")
    assert isthmus("verify", "m")[0] == 0


def test_a_downgrade_is_refused_and_rollback_is_the_way_back(isthmus: Isthmus, model: Callable[[int], str]) -> None:
    for number, sequence in ((1, "1"), (2, "5")):
        assert isthmus("import", model(number), "--name", "m", "--sequence", sequence)[0] == 0
    refused(isthmus("import", model(3), "--name", "m", "--sequence", "4"), 17, "release 4 is older than release 5")
    code, out, _ = isthmus("rollback", "m", "--json")
    assert (code, json.loads(out)["sequence"], json.loads(out)["previous_sequence"]) == (0, 1, 5)
    # Having gone back does not open the door to other old releases.
    refused(isthmus("import", model(3), "--name", "m", "--sequence", "4"), 17, "release 5")
    assert json.loads(isthmus("rollback", "m", "--json")[1])["sequence"] == 5
    refused(isthmus("rollback", "absent"), 1, "not installed")


def test_a_damaged_version_is_not_rolled_back_to(isthmus: Isthmus, model: Callable[[int], str]) -> None:
    for number in (1, 2):
        assert isthmus("import", model(number), "--name", "m")[0] == 0
    flip(home() / "models" / "m" / "previous" / "model.gguf")
    refused(isthmus("rollback", "m"), 13, "model.gguf")
    assert isthmus("verify", "m")[0] == 0


def test_once_a_key_is_trusted_unsigned_and_foreign_packages_are_refused(
    isthmus: Isthmus, model: Callable[[int], str], trusted: str
) -> None:
    refused(isthmus("import", model(1), "--name", "m"), 19, "not signed")
    assert isthmus("keygen", "stranger")[0] == 0
    refused(isthmus("import", model(1), "--name", "m", "--sign-with", "stranger.key"), 18, "none of these keys")
    assert isthmus("import", model(1), "--name", "m", "--sign-with", trusted)[0] == 0
    shown = json.loads(isthmus("show", "m", "--json")[1])
    assert (shown["signer"]["name"], shown["refusal"]) == ("owner", None)
    assert isthmus("trust", "remove", "owner")[0] == 0
    assert isthmus("trust", "add", "stranger.pub")[0] == 0
    refused(isthmus("verify", "m"), 18, "none of these keys is trusted")
    refused(isthmus("serve", "--model", "m", "--port", "0"), 18, "none of these keys is trusted")
    assert json.loads(isthmus("show", "m", "--json")[1])["refusal"] == "untrusted_key"
    assert isthmus("sign", "m", "--key", "stranger.key")[0] == 0
    assert isthmus("verify", "m")[0] == 0
    assert len(json.loads(isthmus("show", "m", "--json")[1])["signatures"]) == 2


def test_a_signature_over_other_bytes_is_refused(isthmus: Isthmus, model: Callable[[int], str], trusted: str) -> None:
    assert isthmus("import", model(1), "--name", "m", "--sign-with", trusted)[0] == 0
    sig = installed_file("m", "manifest.sig")
    signed = sig.read_bytes()
    stated = json.loads(signed)
    other = "B" if stated["signatures"][0]["signature"][5] != "B" else "C"
    text = stated["signatures"][0]["signature"]
    stated["signatures"][0]["signature"] = text[:5] + other + text[6:]
    sig.chmod(0o644)
    sig.write_text(json.dumps(stated))
    refused(isthmus("verify", "m"), 20, "does not match the manifest")
    sig.write_bytes(b"{}")
    refused(isthmus("verify", "m"), 20, "not a signature file")
    sig.unlink()
    refused(isthmus("verify", "m"), 19, "not signed")
    folder = sig.parent.resolve()
    refused(isthmus("pull", f"{folder}/"), 19, "not signed")
    sig.write_bytes(signed)
    assert isthmus("verify", "m")[0] == 0


def test_policies(isthmus: Isthmus, model: Callable[[int], str], trusted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS__EDGE__TRUST__POLICY", "warn")
    code, _, err = isthmus("import", model(1), "--name", "m")
    assert code == 0
    code, _, err = isthmus("verify", "m")
    assert (code, err.count("warning: m is not signed")) == (0, 1)
    monkeypatch.setenv("ISTHMUS__EDGE__TRUST__POLICY", "off")
    assert isthmus("verify", "m")[::2] == (0, "")
    monkeypatch.setenv("ISTHMUS__EDGE__TRUST__POLICY", "require")
    refused(isthmus("verify", "m"), 19, "not signed")


def test_verify_without_a_name_goes_on_past_a_bad_package(isthmus: Isthmus, model: Callable[[int], str]) -> None:
    refused(isthmus("verify"), 1, "No package is installed")
    for number, name in enumerate("abc"):
        assert isthmus("import", model(number), "--name", name)[0] == 0
    flip(installed_file("b"))
    code, out, err = isthmus("verify", "--json")
    rows = json.loads(out)
    assert (code, err) == (13, "")
    assert [(row["name"], row["verified"], row.get("exit_code")) for row in rows] == [
        ("a", True, None),
        ("b", False, 13),
        ("c", True, None),
    ]
    code, out, _ = isthmus("verify")
    assert code == 13
    assert "b is refused" in out


def test_rm_and_gc_spare_what_is_in_use(isthmus: Isthmus, model: Callable[[int], str]) -> None:
    assert isthmus("import", model(1), "--name", "m")[0] == 0
    served = installed_file("m").parent.resolve()
    with lease(served):
        refused(isthmus("rm", "m"), 23, "in use by a running agent")
        for number in (2, 3):  # now neither link leads to what is served
            assert isthmus("import", model(number), "--name", "m")[0] == 0
        assert isthmus("gc")[0] == 0
        assert (served / "model.gguf").exists()
    (home() / "models" / "m" / "staging-killed").mkdir()
    code, out, _ = isthmus("gc", "--json")
    assert code == 0
    assert json.loads(out)["freed_bytes"] > 70_000
    assert not served.exists()
    assert not (home() / "models" / "m" / "staging-killed").exists()
    assert json.loads(isthmus("rm", "m", "--json")[1])["freed_bytes"] > 140_000
    refused(isthmus("show", "m"), 1, "not installed")


def test_keys_are_kept_private_and_never_overwritten(isthmus: Isthmus, tmp_path: Path) -> None:
    code, out, _ = isthmus("keygen", "k", "--json")
    assert code == 0
    assert (tmp_path / "k.key").stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in out
    refused(isthmus("keygen", "k"), 2, "exists")
    refused(isthmus("keygen", "../k"), 2, "name")
    refused(isthmus("trust", "add", "k.key"), 2, "no Ed25519 public key")
    refused(isthmus("trust", "add", "absent.pub"), 2, "cannot be read")
    refused(isthmus("trust", "remove", "k"), 1, "No trusted key")
    (tmp_path / "k.key").chmod(0o644)
    refused(isthmus("sign", "m", "--key", "k.key"), 2, "chmod 600")
    assert isthmus("trust", "add", "k.pub")[0] == 0
    refused(isthmus("trust", "add", "k.pub", "--name", "other"), 2, "trusted already")
    (home() / "trust" / "k.pub").write_text("damaged")
    refused(isthmus("verify"), 2, "no Ed25519 public key")
