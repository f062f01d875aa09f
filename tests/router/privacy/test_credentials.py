"""Credentials that only their name or place tells, in whatever language, program or object; and look-alikes.

PI-07: also as fields of objects, in the arguments of tools and in maps of headers.
"""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition, texts_of
from shared.privacy import PrivacyClass

_W, _D = "swordfish", "Tr0ub4dor99"
_HASH = "$2b$12$" + "abcdefghijklmnopqrstuvABCDEFGHIJKLMNOPQRSTUVWXYZ01234"

NAMED = (
    # a text, and the value in it
    ('{"password": "hunter2"}', "hunter2"),
    (f'{{\n  "user": "bob",\n  "password": "{_W}"\n}}', _W),
    (r"{\"password\": \"swordfish\"}", _W),
    ('{"apiKey": "abcdef123456"}', "abcdef123456"),
    ("{'client_secret': 'correcthorsebattery'}", "correcthorsebattery"),
    ("password: $ecr3tP4ss", "$ecr3tP4ss"),
    ('{"password": "$ecr3t99"}', "$ecr3t99"),
    ("password: envoy7Secret!", "envoy7Secret!"),
    ("password: request99Xy", "request99Xy"),
    ("postgres://app:secret@prod.db.acme.io/x", "secret"),
    ("postgres://app:password@prod-7.acme.io/x", "password"),
    ("postgres://app:{x9K!2@db.acme.io/x", "{x9K!2"),
    ("postgres://app:p@ss@db.acme.io/x", "p@ss"),
    (f"<password>{_W}</password>", _W),
    (f"<db:Password type='x'>{_D}</db:Password>", _D),
    ("<password><![CDATA[a&b1x]]></password>", "a&b1x"),
    (f'<add key="password" value="{_D}"/>', _D),
    (f"- name: DB_PASSWORD\n  value: {_W}", _W),
    (f'{{"name": "DB_PASSWORD", "value": "{_W}"}}', _W),
    (f"db:\n  password: {_W}\n", _W),
    ('password = "correct horse battery"', "correct horse battery"),
    ("passphrase: correct horse battery staple", "correct horse battery staple"),
    (f'connect(user="bob", password="{_W}")', _W),
    (f'variable "db_password" {{ default = "{_W}" }}', _W),
    (f"ENV DB_PASSWORD {_D}", _D),
    (f"ENV DB_PASSWORD={_W}", _W),
    (f"export SECRET_KEY={_W}", _W),
    (f"set DB_PASSWORD={_W}", _W),
    (f"setx API_KEY {_D}", _D),
    (f'$env:API_KEY = "{_D}"', _D),
    (f"set -x API_KEY {_D}", _D),
    (f"PGPASSWORD={_W} psql -h db", _W),
    (f"https://x.io/?user=bob&password={_W}", _W),
    (f"jdbc:sqlserver://h:1433;databaseName=x;user=sa;password={_W};", _W),
    (f"jdbc:oracle:thin:scott/{_D}@h:1521:x", _D),
    (f"bob:{_D}@tcp(db:3306)/app", _D),
    (f"amqp://bob:{_W}@rabbit:5672/vh", _W),
    (f"mongodb+srv://bob:{_W}@c0.x.mongodb.net/a", _W),
    (f"| password | {_D} |", _D),
    (f"my password is {_W}", _W),
    (f'The admin password is "{_W}".', _W),
    ("my password's swordfish", _W),
    (f"user: bob pw: {_D}", _D),
    (f"PW={_D}", _D),
    ("my PIN is 4821", "4821"),
    ("Your verification code is 482913", "482913"),
    *((f"mysql -u root -p{value} app", value) for value in (_W, _D)),
    (f"mysqldump --password={_W} db", _W),
    (f"curl -u bob:{_W} https://x.io", _W),
    (f"curl -ubob:{_W} https://x.io", _W),
    ("curl --user 'bob:correct horse' https://x.io", "correct horse"),
    (f"请运行curl -u bob:{_W} https://x.io", _W),
    (f"sshpass -p {_W} ssh bob@h", _W),
    (f"docker login -u bob -p {_W} reg.io", _W),
    (f"redis-cli -a {_W} ping", _W),
    (f"ldapsearch -D cn=admin -w {_W}", _W),
    (f"openssl enc -aes-256-cbc -pass pass:{_W}", _W),
    (f"net use Z: \\\\srv\\share /user:bob {_D}", _D),
    (f"smbclient //srv/share -U bob%{_W}", _W),
    (f"machine api.acme.io login bob password {_W}", _W),
    (f"machine api.acme.io\n  login bob\n  password {_W}\n", _W),
    (f"db.acme.io:5432:app:bob:{_W}", _W),
    (f"bob:{_HASH}", _HASH),
    ("Authorization: Basic Ym9iOmFiYw==", "Ym9iOmFiYw=="),
)
_WORDS = (
    "密码：", "密码是", "密碼: ", "口令：", "パスワード：", "パスワードは", "비밀번호: ", "암호는 ", "пароль: ",
    "Пароль до бази: ", "hasło: ", "heslo: ", "şifre: ", "ŞİFRE: ", "parola: ", "wachtwoord: ", "lösenord: ",
    "passord: ", "adgangskode: ", "salasana: ", "jelszó: ", "mật khẩu: ", "kata sandi: ", "palavra-passe: ",
    "senha: ", "clave: ", "contraseña: ", "Passwort: ", "Kennwort lautet ", "mot de passe : ", "كلمة المرور: ",
    "סיסמה: ", "पासवर्ड: ", "รหัสผ่าน: ", "κωδικός πρόσβασης: ", "password for the database: ",
    "Password (root): ", "**Password:** ", "dbPassword=", "pаsswоrd: ",
)  # fmt: skip
NOTHING = (
    "\"password\": \"string\"", "\"password\": \"***\"", "password: ${DB_PASSWORD}", "password: $DB_PASSWORD",
    "password: $(cat f)", "\"password\": \"<your password>\"", "Enter your password: then press enter",
    "password: required", "token: none", "api_key=os.environ[\"X\"]", "api_key: YOUR_API_KEY",
    "postgres://user:password@localhost/db", "my password is wrong", "The password is required", "secret: true",
    "token = tokens[3]", "password = input(\"Password: \")", "next_token: continue", "\"token_type\": \"bearer\"",
    "primary key: id", "\"max_tokens\": 100", "tokenizer: sentencepiece", "Password: ********", "密码是什么？",
    "密码错误，请重试", "我忘记了密码：怎么办", "The secret is to practice every day", "clave: tonalidad",
    "mot de passe oublié : cliquez ici", "password=password", "PASS: test_login2", "compass: N45W7deg",
    "<password></password>", "<password>your_password</password>", "mysql -u root -p app",
    "docker run -p 8080:80 x", "mkdir -p foo/bar", "curl -u user:password http://localhost",
    "machine learning login password reset", "ssh -p 2222 host", "token: str",
    "def f(token: Optional[str] = None)", "{\"properties\": {\"password\": {\"type\": \"string\"}}}",
    "token: [MASK]", "token: u64", "password: [PASSWORD_1]", "postgres://bob:[CONNECTION_STRING_1]@db.acme.io/x",
    "password_url: https://x.io/a1b2c3", "password hash: bcrypt, salt: 16 bytes", "\"secret\": \"yes\"",
    "session: 14", "key = keys[2]", "пароль обязателен",
)  # fmt: skip


def _scan(scanner: Scanner, text: str) -> set[tuple[str, str]]:
    found = scanner.scan([TextPosition("t", text)])
    return {(e.kind, text[e.start : e.end]) for e in found.entities}


@pytest.mark.parametrize(("text", "value"), NAMED)
def test_a_credential_is_found_by_its_name_or_place(scanner: Scanner, text: str, value: str) -> None:
    found = _scan(scanner, text)
    assert any(covered == value for _, covered in found), found


@pytest.mark.parametrize("words", _WORDS)
def test_a_password_is_found_by_its_name_in_any_language(scanner: Scanner, words: str) -> None:
    assert ("password", "Winter2024x") in _scan(scanner, f"{words}Winter2024x")


@pytest.mark.parametrize("text", NOTHING)
def test_what_only_speaks_of_credentials_is_left_alone(scanner: Scanner, text: str) -> None:
    assert _scan(scanner, text) == set()


def _call(arguments: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}}
    return {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}


_BODIES: dict[str, dict[str, Any]] = {
    "metadata": {"metadata": {"password": "hunter2"}},
    "a word": {"metadata": {"secret": "correcthorsebattery"}},
    "digits": {"metadata": {"password": "12345678"}},
    "a number": {"metadata": {"password": 12345678}},
    "a PIN": {"metadata": {"pin": "4821"}},
    "another language": {"metadata": {"密码": _W}},
    "deep in metadata": {"metadata": {"db": [{"primary": {"pwd": _W}}]}},
    "tool arguments": _call({"auth": {"password": _W}}),
    "headers in arguments": _call({"headers": {"X-Api-Key": "f3b1c2d4e5f60718"}}),
    "a cookie": _call({"headers": {"Cookie": "sid=38afes7a8f2k3j4h5g6"}}),
    "headers as pairs": _call({"headers": [["X-Api-Key", "f3b1c2d4e5f60718"]]}),
    "headers as objects": _call({"headers": [{"name": "X-API-Key", "value": "f3b1c2d4e5f60718"}]}),
    "an environment": _call({"env": [{"name": "DB_PASSWORD", "value": _W}]}),
    "input of a tool_use": {
        "messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {"password": _W}}]}]
    },
    "arguments of a response": {
        "input": [{"type": "function_call", "name": "f", "arguments": json.dumps({"api_key": "kjhgfdsaqwert"})}]
    },
    "a default of a schema": {"tools": [{"function": {"parameters": {"name": "password", "default": _D}}}]},
}


@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
def test_pi_07_a_key_of_an_object_names_a_credential(scanner: Scanner, body: dict[str, Any]) -> None:
    found = scanner.scan(texts_of(body, orjson.dumps(body)))
    assert found.privacy_class is PrivacyClass.SECRET
    assert "password" in found.kinds


def test_schemas_and_plain_fields_name_none(scanner: Scanner) -> None:
    body = {
        "tools": [{"function": {"parameters": {"properties": {"password": {"type": "string", "title": "One"}}}}}],
        "metadata": {"key": "value", "token_count": "120", "auth": "none", "password": "required", "token": "world"},
    }  # fmt: skip
    assert not scanner.scan(texts_of(body, orjson.dumps(body))).kinds


_ALIKE = (
    ("iban", "DЕ89 3704 0044 0532 0130 00"),
    ("iban", "GΒ82 WΕSΤ 1234 5698 7654 32"),
    ("iban", "МТ84MALT011000012345MTLCAST001S"),
    ("iban", "ᎠE89370400440532013000"),
    ("iban", "ᴅᴇ89370400440532013000"),
    ("es_dni", "12345678Ζ"),
    ("in_pan", "АСUРА7085R"),
    ("gb_nino", "АВ 12 34 56 С"),
    ("it_codice_fiscale", "RSSMRА85Т10А562S"),
    ("cn_resident_id", "11010519491231002Х"),
    ("github_token", "ghр_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    ("aws_access_key", "АКIА" + "IOSFODNN7EXAMPLE"),
    ("email", "bоb@exаmple.cоm"),
)


@pytest.mark.parametrize(("kind", "text"), _ALIKE)
def test_letters_of_other_scripts_hide_no_number(scanner: Scanner, kind: str, text: str) -> None:
    assert kind in scanner.scan([TextPosition("t", f"see {text} now")]).kinds


@pytest.mark.parametrize(
    "text",
    ["В 2024 году было 5 случаев, API-ключ и IT-компания", "Στο 2024 η τιμή ήταν 5 €", "У нас 3 кота и 2 собаки"],
)
def test_texts_in_those_scripts_are_left_alone(scanner: Scanner, text: str) -> None:
    assert not scanner.scan([TextPosition("t", text)]).kinds


@pytest.mark.parametrize(
    "text",
    [
        "1101 0519 4912 3100 2X", "110-105-1949-12-31-002-X", "110 105 194 912 310 02X", "110105.19491231.002X",
        "110105/19491231/002X", "11 01 05 19 49 12 31 00 2X", "11010519491231 002X", "身份证 11010 519491 2310 02X",
    ],
)  # fmt: skip
def test_pi_03_a_resident_id_is_found_in_any_grouping(scanner: Scanner, text: str) -> None:
    assert scanner.scan([TextPosition("t", text)]).kinds == {"cn_resident_id"}
