"""What the scanner looks for: one file a family, one table over all."""

from __future__ import annotations

from router.privacy.recognisers import cards, chinese, credentials, emails, iban, phones, social_security
from router.privacy.recognisers.model import Recogniser

ALL: tuple[Recogniser, ...] = (
    *cards.RECOGNISERS,
    *iban.RECOGNISERS,
    *chinese.RECOGNISERS,
    *emails.RECOGNISERS,
    *phones.RECOGNISERS,
    *social_security.RECOGNISERS,
    *credentials.RECOGNISERS,
)
