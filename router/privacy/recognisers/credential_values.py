"""Decides whether what stands behind the name of a credential is one: not a placeholder, a type, code or prose."""

from __future__ import annotations

import re

from router.privacy.recognisers.credential_words import Name, Sort

_REFERENCE = re.compile(
    r"\$?\{\{?.*\}?\}|\$\(.*|\$[A-Z][A-Z0-9_]*|\$[A-Za-z_]+[0-9]?|\$(?:ref|env):?\S*|%[A-Za-z_]+%?|%\([a-z_]+\)s"
    r"|<[^<>]*>?|\[[A-Za-z _-]*(?:_[0-9]{1,5})?\]?|@[A-Z_]+@|:[a-z_]+|&[a-z_]+;?|\*[a-z_]+"
    r"|!(?:Ref|Sub|GetAtt|ENV|secret|vault)\b.*"
)
"""What stands for a value that is filled in later, or was taken out before."""
_MASK = re.compile(r"[*•●.·#_\-=?]+|(.)\1+|[xX*.•-]+", re.DOTALL)
_WORDS = re.compile(
    r"(?i)(?:(?:your|my|the|some|any|a|an|new|old|current|insert|enter|put|replace|change|add|type|use|set|get|no|with|from"
    r"|here|this|that|these|me|it|is|are|not|user|username|name|login|admin|root|email|e-?mail|account|pass(?:word|wd|phrase"
    r"|code)?s?|pwd|secrets?|tokens?|keys?|api|apikey|access|auth|id|value|val|string|str|text|varchar|char|number|num|int(?:eger)?"
    r"|float|double|bool(?:ean)?|object|array|list|dict|map|bytes?|any|null|nil|none|undefined|unset|empty|blank|default"
    r"|true|false|yes|on|off|required?|optional|missing|hidden|masked|removed|redacted|sealed|encrypted|hashed|plain(?:text)?"
    r"|example|sample|dummy|test|demo|fake|mock|foo|bar|baz|placeholder|changeme|change|todo|tbd|fixme|xxx+"
    r"|invalid|incorrect|wrong|expired|valid|unknown|random|generated|public|private|protected|const|final|static|readonly|async"
    r"|await|return|self|this|bearer|basic|digest|oauth2?|jwt|saml|ldap|bcrypt|argon2\w*|pbkdf2|scrypt|sha-?[0-9]*|md5"
    r"|hs256|rs256|es256|aes\w*|rsa|ed25519|base-?64\w*|base-?32|hex|utf-?(?:8|16|32)|ascii|utf8mb4|u?int(?:8|16|32|64)(?:_t)?"
    r"|[uif](?:8|16|32|64|128)|ipv[46]|x-?509|k8s|ec2|s3|forgot(?:ten)?|reset|sent|received|saved|stored|updated|created"
    r"|requested|reused|disabled|enabled|failed|success(?:ful)?|ok|error|warning|info|debug|next|prev(?:ious)?|first|last"
    r"|continue|cancel|submit|show|hide|copy|stop|start|begin|end|eos|bos|eof|pad|unk|mask|cls"
    r"|sep)[-_ .:!/]*[0-9]{0,3}[-_ .:!/]*)+"
)
"""Words of forms, types, algorithms and documentation: nothing but them is no value."""
_YOURS = re.compile(
    r"(?i)(?:your|my|insert|enter|put|replace)[-_ ].*|\.{3}.*|.*\.{3}|.*(?:x{6}|\*{3}).*|re(?:dact|mov)ed.*"
)
_CODE = re.compile(
    r"(?:(?:os|sys|self|this|cfg|conf|config|settings|args|opts|options|params?|req|request|res|response|env|process|ctx"
    r"|context|app|user|data|form|body|kwargs|secrets|vault|var|local|module|props|state|event|session|input|row|record)"
    r"(?:[.\[]|->|::|\?\.)|getenv|std::|new [A-Z]|lambda\b|Optional\[|Vec<|&str|https?:).*"
)
_CALL = re.compile(r"[A-Za-z_][\w.:>-]{0,128}[(\[{](?:[^)\]}]*|.*[)\]}])[;,]?")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z_.\-/]*")
_FIGURE = re.compile(
    r"[0-9.,:%/+\-]+(?: ?(?:ms|s|sec|seconds|min|minutes|h|hours|d|days?|kb|mb|gb|px|k|m|chars?|characters|bits?"
    r"|bytes?))?|[0-9]{1,4}-[a-z-]+",
    re.IGNORECASE,
)
_NAMED_WITHIN = re.compile(
    r"(?i)pass(?:word|wort|wd)|passe\b|kennwort|contrase|token\b|secret\b|api[_ -]?key|username|\bpwd\b"
    r"|парoл|密码|パスワ"
)
_DIGITS = re.compile(r"[0-9]+")
_PROSE = re.compile(
    r"(?i)(?:.*\s)?(?:the|your|a|an|of|is|are|for|must|should|to|at|least|and|or|with|please|used?|will|be|if|in|on|by|from|der"
    r"|die|das|ist|le|la|les|est|de|el|es)(?:\s.*)?"
)
_MIN_WORD_CHARS = {Sort.PASSWORD: 6, Sort.KEY: 8}


def is_placeholder(value: str) -> bool:
    """Whether a value only says where one would stand."""
    return any(each.fullmatch(value) for each in (_REFERENCE, _MASK, _WORDS, _YOURS))


def is_code(value: str) -> bool:
    """Whether it is an expression that gets the value from elsewhere."""
    return _CODE.fullmatch(value) is not None or _CALL.fullmatch(value) is not None


def looks_drawn(value: str) -> bool:
    """Whether a value is more than a word, a name or a figure: several sorts of characters."""
    sorts = [any(map(test, value)) for test in (str.isdigit, str.isupper, str.islower)]
    signs = any(not c.isalnum() for c in value)
    is_name = _PLAIN_NAME.fullmatch(value) is not None
    return not is_name and sum(sorts) + signs >= 2 and len(set(value)) >= 4 and not _FIGURE.fullmatch(value)


def opens_something(value: str, name: Name, *, is_certain: bool) -> bool:
    """Whether `value` is a credential of that name. `is_certain`: the writing says that it is the value as a whole,
    as quotes and fields of an object do; then a password may be a word, a number or a phrase too."""
    if name.sort is Sort.PIN:
        return _DIGITS.fullmatch(value) is not None and 4 <= len(value) <= 8
    least = 8 if name.sort is Sort.TOKEN else 5 if is_certain else 6
    if is_placeholder(value) or is_code(value) or (_NAMED_WITHIN.search(value) and not _mixed(value)):
        return False
    if len(value) >= least and looks_drawn(value) and (" " not in value or is_certain):
        return not is_prose(value) and (name.sort is not Sort.TOKEN or _mixed(value))
    if not is_certain or name.sort not in _MIN_WORD_CHARS:
        return False
    if _DIGITS.fullmatch(value):
        return name.is_plain and name.sort is Sort.PASSWORD and len(value) >= 4
    return len(value) >= _MIN_WORD_CHARS[name.sort] and not _FIGURE.fullmatch(value) and not is_prose(value)


def _mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def is_prose(value: str) -> bool:
    """Whether it is a phrase of everyday words, as a description is, rather than words drawn one by one."""
    return " " in value and (_PROSE.fullmatch(value) is not None or value[-1:] in ".!?:")
