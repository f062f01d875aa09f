"""Keys, tokens, passwords in addresses and private keys: what opens something to whoever reads it.

Most services mark their keys by a prefix; the table lists prefix, alphabet and length. Placeholders of
documentation (`sk-xxxxxxxxxxxxxxxxxxxx`, `user:password@`, `<token>`) open nothing and are left alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick
from shared.privacy import PrivacyClass

_WORD = "A-Za-z0-9"
_URL = "A-Za-z0-9_\\-"
_MAX_CHARS = 32 * 1024
"""A token is taken whole: what a bound cut off would go on."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A token: `head` is how it begins, `alphabet` and `least` say what follows; `trigger` is the pattern for the
    one-pass database where it cannot be put together from those."""

    kind: str
    head: str
    alphabet: str
    least: int
    trigger: str = ""


_SHAPES = (
    _Shape("anthropic_key", "sk-ant-", _URL, 24),
    _Shape("openai_key", "sk-(?:proj-|svcacct-|admin-|None-)?(?!ant-)", _URL, 20),
    _Shape("isthmus_key", "isk-", _URL, 43),
    _Shape("aws_access_key", "(?:AKIA|ASIA|ABIA|ACCA)", "A-Z2-7", 16),
    _Shape("github_token", "gh[pousr]_", _WORD, 36),
    _Shape("github_token", "github_pat_", "A-Za-z0-9_", 36),
    _Shape("gitlab_token", "gl(?:pat|rt|dt|cbt|ptt|ft|imt|agent|soat)-", _URL, 20),
    _Shape("slack_token", "xox[abceoprs]-", "A-Za-z0-9\\-", 20),
    _Shape("slack_token", "xapp-[0-9]-", "A-Za-z0-9\\-", 24),
    _Shape("slack_webhook", "hooks[.]slack[.]com/services/", "A-Za-z0-9/", 24),
    _Shape("google_key", "AIza", _URL, 35),
    _Shape("google_token", "ya29[.]", _URL, 30),
    _Shape("google_secret", "GOCSPX-", _URL, 24),
    _Shape("stripe_key", "[srp]k_(?:live|test)_", _WORD, 16),
    _Shape("stripe_key", "whsec_", "A-Za-z0-9+/=", 24),
    _Shape("huggingface_token", "hf_", _WORD, 30),
    _Shape("npm_token", "npm_", _WORD, 36),
    _Shape("pypi_token", "pypi-AgE", _URL, 40),
    _Shape("groq_key", "gsk_", _WORD, 40),
    _Shape("xai_key", "xai-", _WORD, 60),
    _Shape("databricks_token", "dapi", "0-9a-f", 32),
    _Shape("digitalocean_token", "do[opr]_v1_", "0-9a-f", 64),
    _Shape("sendgrid_key", "SG[.][A-Za-z0-9_\\-]{22}[.]", _URL, 43),
    _Shape("telegram_token", "[0-9]{8,10}:AA", _URL, 33),
    _Shape("azure_key", "AccountKey=", "A-Za-z0-9+/=", 40),
    _Shape("jwt", "eyJ[A-Za-z0-9_\\-]{8,4096}[.]eyJ[A-Za-z0-9_\\-]{8,8192}[.]", _URL, 16, "[.]eyJ[A-Za-z0-9_\\-]{8}"),
    _Shape("age_key", "AGE-SECRET-KEY-1", "A-Z0-9", 58),
    _Shape("openrouter_key", "sk-or-v1-", "0-9a-f", 48),
    _Shape("perplexity_key", "pplx-", _WORD, 40),
    _Shape("nvidia_key", "nvapi-", _URL, 40),
    _Shape("replicate_token", "r8_", _WORD, 36),
    _Shape("azure_devops_token", "AZDO", _WORD, 48),
    _Shape("shopify_token", "shp(?:at|ca|pa|ss)_", "0-9a-fA-F", 32),
    _Shape("square_token", "sq0(?:atp|csp|idp)-", _URL, 22),
    _Shape("grafana_token", "gl(?:sa|c)_", "A-Za-z0-9+/=_", 32),
    _Shape("vault_token", "hv[sbr][.]", _URL, 24),
    _Shape("docker_token", "dckr_(?:pat|oat)_", _URL, 24),
    _Shape("atlassian_token", "AT(?:ATT|CTT)3", "A-Za-z0-9_\\-=", 60),
    _Shape("linear_key", "lin_api_", _WORD, 32),
    _Shape("notion_token", "(?:ntn_|secret_)", _WORD, 40),
    _Shape("figma_token", "figd_", _URL, 36),
    _Shape("postman_key", "PMAK-", "0-9a-f\\-", 50),
    _Shape("newrelic_key", "NRAK-", "A-Z0-9", 27),
    _Shape("sentry_token", "sntry[su]_", "A-Za-z0-9+/=_", 40),
    _Shape("planetscale_token", "pscale_(?:tkn|pw|oauth)_", "A-Za-z0-9_.\\-", 32),
    _Shape("pulumi_token", "pul-", "0-9a-f", 40),
    _Shape("rubygems_key", "rubygems_", "0-9a-f", 48),
    _Shape("tailscale_key", "tskey-(?:auth-|api-|client-)?", _URL, 20),
    _Shape("sendinblue_key", "xkeysib-", "0-9a-f\\-", 64),
    _Shape("mailgun_key", "key-", "0-9a-f", 32),
    _Shape("mailchimp_key", "[0-9a-f]{32}-us", "0-9", 1),
    _Shape("twilio_key", "(?:SK|AC)", "0-9a-f", 32),
    _Shape("discord_token", "[MNO][A-Za-z0-9_\\-]{23,27}[.][A-Za-z0-9_\\-]{6}[.]", _URL, 27),
    _Shape("discord_webhook", "discord(?:app)?[.]com/api/webhooks/[0-9]{15,21}/", _URL, 50),
    _Shape("facebook_token", "EAAC", _WORD, 60),
    _Shape("github_token", "ghs_", "A-Za-z0-9_.\\-", 36),
    _Shape("stripe_key", "(?:pk|ek)_live_", _WORD, 16),
    _Shape("supabase_key", "sb(?:p|_secret)_", _WORD, 30),
    _Shape("terraform_token", "[A-Za-z0-9]{14}[.]atlasv1[.]", _URL, 60),
    _Shape("artifactory_token", "AKC[a-z0-9]", _WORD, 60),
    _Shape("doppler_token", "dp[.](?:pt|st|ct|sa)[.]", "A-Za-z0-9._\\-", 40),
    _Shape("aws_session", "(?:FwoG|IQoJ)", "A-Za-z0-9+/=", 100),
)


def _finder_of(shape: _Shape) -> re.Pattern[str]:
    # A sign may precede a key, but not a JWT: its parts hold such signs, and each would start a search of its own.
    before = r"A-Za-z0-9_\-" if shape.kind == "jwt" else "A-Za-z0-9"
    return re.compile(
        rf"(?<![{before}]){shape.head}(?P<rest>[{shape.alphabet}]{{{shape.least},{_MAX_CHARS}}})"
    )  # fmt: skip


def _trigger_of(shape: _Shape) -> bytes:
    # The one-pass engine has no look-ahead and needs none: a trigger may fire too often.
    head = shape.head.replace("(?!ant-)", "")
    return (shape.trigger or f"{head}[{shape.alphabet}]{{{shape.least}}}").encode()


def _is_placeholder(rest: str) -> bool:
    """Whether a token is only a picture of one: a few characters repeated, or a word that says so."""
    lowered = rest.lower()
    return len(set(rest)) < 6 or any(w in lowered for w in ("xxxx", "your-", "your_", "placeholder", "redacted"))


def _find_shape(shape: _Shape) -> Recogniser:
    pattern = _finder_of(shape)

    def find(text: str, tick: Tick) -> Iterator[Span]:
        for match in pattern.finditer(text):
            tick()
            if not _is_placeholder(match["rest"]):
                yield match.span()

    return Recogniser(shape.kind, PrivacyClass.SECRET, (_trigger_of(shape),), find)


_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^-]{0,20000}-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----)?"
)
_PUTTY_KEY = re.compile(r"PuTTY-User-Key-File-[23]: [^\n]{1,200}\n")
_AWS_SECRET = re.compile(
    r"(?i)aws.{0,20}(?:secret|private).{0,20}?[=:\"' ]{1,4}(?P<value>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
)
_BEARER = re.compile(r"(?i)\bbearer[ \t]{1,4}(?P<value>[A-Za-z0-9._~+/\-]{20,4096}={0,2})")
_BASIC = re.compile(
    r"(?i)\bauthorization[\"']?[ \t]{0,2}:[ \t]{0,2}[\"']?basic[ \t]{1,4}(?P<value>[A-Za-z0-9+/]{8,512}={0,2})"
)
_BASIC_PAIR = re.compile(r"(?i)\bbasic[\"'`+ \t]{1,8}(?P<value>[A-Za-z0-9+/]{8,512}={0,2})")
"""Without the header's name before it: a finding only where it decodes to a name and a password."""


def _find_private_keys(text: str, tick: Tick) -> Iterator[Span]:
    for pattern in (_PRIVATE_KEY, _PUTTY_KEY):
        for match in pattern.finditer(text):
            tick()
            yield match.span()


def _mixed(value: str) -> bool:
    """Whether a value looks drawn rather than written: letters beside digits."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def _find_bearers(text: str, tick: Tick) -> Iterator[Span]:
    for match in _BEARER.finditer(text):
        tick()
        if _mixed(match["value"]) and not _is_placeholder(match["value"]):
            yield match.span("value")


def _find_basic(text: str, tick: Tick) -> Iterator[Span]:
    for match in _BASIC.finditer(text):
        tick()
        if not _is_placeholder(match["value"]):
            yield match.span("value")
    for match in _BASIC_PAIR.finditer(text):
        tick()
        if _is_pair(match["value"]):
            yield match.span("value")


def _is_pair(encoded: str) -> bool:
    """Whether `encoded` is base64 of printable text with a colon in it."""
    plain = encoded.rstrip("=")
    try:
        pair = base64.b64decode(plain + "=" * (-len(plain) % 4)).decode()
    except ValueError:
        return False
    return pair.isprintable() and 0 < pair.find(":") < len(pair) - 1


def _find_aws_secrets(text: str, tick: Tick) -> Iterator[Span]:
    for match in _AWS_SECRET.finditer(text):
        tick()
        if _mixed(match["value"]) and not _is_placeholder(match["value"]):
            yield match.span("value")


RECOGNISERS: tuple[Recogniser, ...] = (
    *(_find_shape(shape) for shape in _SHAPES),
    Recogniser(
        "private_key",
        PrivacyClass.SECRET,
        (rb"-----BEGIN [A-Z0-9 ]{0,64}PRIVATE KEY", rb"PuTTY-User-Key-File-[23]"),
        _find_private_keys,
    ),
    Recogniser("bearer_token", PrivacyClass.SECRET, (rb"(?i)bearer[ \t]{1,4}[A-Za-z0-9._~+/\-]{20}",), _find_bearers),
    Recogniser("basic_credentials", PrivacyClass.SECRET, (rb"(?i)basic[\"'`+ \t]{1,8}[A-Za-z0-9+/]{8}",), _find_basic),
    Recogniser(
        "aws_secret_key", PrivacyClass.SECRET, (rb"(?i)aws.{0,40}[=:\"' ][A-Za-z0-9/+]{40}",), _find_aws_secrets
    ),
)
