"""How far an action reaches, by the words that name systems: production and everybody, or a test system."""

from __future__ import annotations

import re
from typing import Literal

_LIMITED = re.compile(
    r"(?<![a-z0-9])(?:staging|stage|stg|tests?|testing|(?<!/)te?mp|temporary|dev|develop|development|sandbox|"
    r"localhost|127\.0\.0\.1|"
    r"preview|scratch|demo|e2e|fixtures?|minikube|ephemeral|qa|uat|playground|local|pr-\d{1,6})"
    r"(?![a-z0-9])"
)
_WIDE = re.compile(
    r"(?<![a-z0-9])(?:prod|production|live|prd|customers?|everyone|"
    r"all[ _-]?users|all[ _-]?customers|"
    r"company[ _-]?wide|global(?:ly)?|worldwide|every[ _-]?(?:user|customer|tenant|region|host|server)|"
    r"all (?:the )?(?:regions|hosts|servers|"
    r"tenants|accounts|environments|databases|data|clusters|nodes|backups))(?![a-z0-9])"
)


def reach(text: str) -> Literal["limited", "wide", "unsaid"]:
    """Whether words name production and everybody, or only staging, tests and the like."""
    low = text.lower()
    if _WIDE.search(low):
        return "wide"
    return "limited" if _LIMITED.search(low) else "unsaid"
