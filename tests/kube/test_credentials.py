from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runherd.kube.credentials import Credential, FileCredentials, StaticCredentials
from runherd.kube.errors import CredentialError
from tests.support.virtual_time import run_in_virtual_time


def test_static_credentials_have_no_other() -> None:
    async def main() -> None:
        credential = Credential("t")
        source = StaticCredentials(credential)
        assert await source.current() is credential
        assert await source.renew(credential) is credential

    run_in_virtual_time(main())


def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "token"
        file.write_text(" one\n")
        source = FileCredentials(token_file=file)
        first = await source.current()
        assert first.token == "one"
        file.write_text("two")
        await asyncio.sleep(59)
        assert await source.current() is first
        await asyncio.sleep(1)
        assert (await source.current()).token == "two"

    run_in_virtual_time(main())


def test_a_token_file_is_read_at_once_when_the_server_rejects_the_token(tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "token"
        file.write_text("one")
        source = FileCredentials(token_file=file)
        rejected = await source.current()
        assert await source.renew(rejected) is rejected  # nothing new in it
        file.write_text("two")
        renewed = await source.renew(rejected)
        assert renewed.token == "two"
        file.write_text("three")
        assert await source.renew(rejected) is renewed  # somebody else has had it renewed already

    run_in_virtual_time(main())


def test_content_that_did_not_change_is_the_same_credential(tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "token"
        file.write_text("one")
        source = FileCredentials(token_file=file)
        first = await source.current()
        await asyncio.sleep(100)
        assert await source.current() is first

    run_in_virtual_time(main())


@pytest.mark.parametrize("damage", ["missing", "empty", "binary", "two lines"])
def test_a_file_that_turns_bad_leaves_the_last_token_in_use(tmp_path: Path, damage: str) -> None:
    async def main() -> None:
        file = tmp_path / "token"
        file.write_text("one")
        source = FileCredentials(token_file=file)
        first = await source.current()
        match damage:
            case "missing":
                file.unlink()
            case "empty":
                file.write_text("\n")
            case "binary":
                file.write_bytes(b"\xff\x00")
            case "two lines":
                file.write_text("one\r\nInjected: header")
        await asyncio.sleep(60)
        assert await source.current() is first
        file.write_text("back")
        await asyncio.sleep(60)
        assert (await source.current()).token == "back"

    run_in_virtual_time(main())


def test_a_token_file_that_was_never_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    async def main() -> None:
        source = FileCredentials(token_file=tmp_path / "token")
        with pytest.raises(CredentialError, match=r"/token: No such file or directory") as caught:
            await source.current()
        assert not caught.value.request_sent
        (tmp_path / "token").write_bytes(b"\x00secret")
        with pytest.raises(CredentialError, match=r"/token: holds no token"):
            await source.current()
        (tmp_path / "token").write_text("at last")
        assert (await source.current()).token == "at last"

    run_in_virtual_time(main())


def test_a_token_that_is_given_holds_until_its_file_can_be_read(tmp_path: Path) -> None:
    async def main() -> None:
        source = FileCredentials(token_file=tmp_path / "token", fallback=Credential("given", b"cert", b"key"))
        assert await source.current() == Credential("given", b"cert", b"key")
        (tmp_path / "token").write_text("read")
        await asyncio.sleep(60)
        assert await source.current() == Credential("read", b"cert", b"key")

    run_in_virtual_time(main())


def test_certificate_files_are_read_again_too(tmp_path: Path) -> None:
    async def main() -> None:
        certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
        certificate.write_bytes(b"c1")
        key.write_bytes(b"k1")
        source = FileCredentials(certificate_file=certificate, key_file=key)
        assert await source.current() == Credential("", b"c1", b"k1")
        certificate.write_bytes(b"c2")
        key.write_bytes(b"k2")
        await asyncio.sleep(60)
        assert await source.current() == Credential("", b"c2", b"k2")

    run_in_virtual_time(main())


def test_a_credential_shows_nothing() -> None:
    text = repr(Credential("secret-token", b"secret-cert", b"secret-key"))
    assert "secret" not in text
