"""What the scanner looks for: one file a family, one table over all."""

from __future__ import annotations

from router.privacy.recognisers import (
    addresses,
    cards,
    chinese,
    command_lines,
    connections,
    credentials,
    emails,
    iban,
    national_ids,
    passwords,
    phones,
    social_security,
)
from router.privacy.recognisers.model import Recogniser


def built_in() -> tuple[Recogniser, ...]:
    """All recognisers of this package."""
    return (
        *cards.RECOGNISERS,
        *iban.RECOGNISERS,
        *chinese.RECOGNISERS,
        *national_ids.recognisers(),
        *emails.RECOGNISERS,
        *phones.RECOGNISERS,
        *addresses.RECOGNISERS,
        *social_security.RECOGNISERS,
        *credentials.RECOGNISERS,
        *passwords.recognisers(),
        *command_lines.RECOGNISERS,
        *connections.RECOGNISERS,
    )
