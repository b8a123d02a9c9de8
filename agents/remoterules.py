"""Judges commands and SQL by what they do elsewhere: to clusters, clouds, databases. Knows nothing of files.

The same words weigh less where they name a test or staging, and more where they name production.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from council.agents.personal import words

Grade = Literal["destructive", "risky", "notable"]
Judgement = tuple[str, Grade]

_LIMITED = re.compile(
    r"(?<![a-z0-9])(?:staging|stage|stg|tests?|testing|tmp|temp|temporary|dev|develop|development|sandbox|"
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


def _remote(kind: str, grade: Grade, command: str) -> Judgement:
    """A remote resource's removal, graded by what its words say of its reach."""
    return kind, {"limited": "notable", "wide": "destructive", "unsaid": grade}[reach(command)]  # type: ignore[return-value]


def judge_remote(name: str, rest: list[str]) -> Iterator[Judgement]:
    command = " ".join(rest)
    verbs = [word for word in rest if not word.startswith("-")]
    if name in {"kubectl", "oc"} and "delete" in verbs[:3]:
        large = words("ns namespace namespaces pv pvc persistentvolumeclaim crd node nodes project")
        everything = any(word in {"--all", "-A", "--all-namespaces"} for word in rest)
        big = everything or any(re.split(r"[/,]", word)[0] in large for word in verbs)
        yield (
            _remote("deletes a namespace, volume or everything (kubectl)", "destructive", command)
            if big
            else _remote("deletes a resource (kubectl)", "notable", command)
        )
    elif name in {"terraform", "tofu", "terragrunt", "pulumi", "cdk"} and "destroy" in rest:
        blind = any(re.fullmatch(r"--?(?:auto-approve|force|yes|y)(?:=true)?|-f|-y", word) for word in rest)
        yield _remote(f"destroys infrastructure ({name})", "destructive" if blind else "risky", command)
    elif name == "aws" and verbs[:2] == ["s3", "rb"]:
        yield _remote(
            "removes a bucket (aws s3 rb)", "destructive" if "--force" in rest else "risky", command
        )
    elif name == "aws" and verbs[:2] == ["s3", "rm"] and "--recursive" in rest:
        yield _remote("removes a bucket's content (aws s3 rm)", "risky", command)
    elif (
        name == "aws"
        and len(verbs) > 1
        and verbs[1].startswith(("delete-", "terminate-", "deregister-", "schedule-key"))
    ):
        yield _remote(f"deletes a cloud resource (aws {verbs[0]})", "risky", command)
    elif name in {"gcloud", "az", "doctl", "heroku", "flyctl", "fly"} and re.search(
        r"(?:^| |:)(?:delete|destroy|purge)\b", command
    ):
        yield _remote(f"deletes a cloud resource ({name})", "risky", command)
    elif (name == "gsutil" and verbs[:1] in (["rm"], ["rb"])) or (
        name == "helm" and verbs[:1] in (["uninstall"], ["delete"])
    ):
        yield _remote(f"deletes a remote resource ({name})", "risky", command)
    elif name in {"dropdb", "mysqladmin"} and (name == "dropdb" or "drop" in verbs):
        yield _remote("drops a database", "destructive", command)
    elif name == "redis-cli" and any(word.lower() in {"flushall", "flushdb"} for word in verbs):
        yield _remote("empties a database (redis)", "destructive", command)
    elif name in {"docker", "podman"} and "prune" in verbs and "--volumes" in rest:
        yield "removes volumes (docker prune)", "risky"


_SQL_DROP = re.compile(
    r"\bdrop\s{1,20}(database|schema|table)\b|\btruncate\s{1,20}(?:table\s{1,20})?\w", re.IGNORECASE
)
_SQL_ALL = re.compile(r"\bdelete\s{1,20}from\s{1,20}[\w.\"`]{1,120}\s{0,20}(?:;|$|\"|')", re.IGNORECASE)
_SQL_COMMENT = re.compile(r"--[^\n]{0,2000}|/\*[^*]{0,2000}\*/")
_MONGO = re.compile(r"\.dropDatabase\(|\.drop\(\)")


def judge_sql(sql: str, around: str = "") -> Iterator[Judgement]:
    """What an SQL text destroys; ``around`` is the command that carries it, for its reach."""
    sql = _SQL_COMMENT.sub(" ", sql)
    named = f"{sql} {around}"
    if match := _SQL_DROP.search(sql):
        whole = (match.group(1) or "").lower() in {"database", "schema"}
        yield _remote(
            "drops a database" if whole else "drops or empties a table",
            "destructive" if whole else "risky",
            named,
        )
    elif _SQL_ALL.search(sql):
        yield _remote("deletes every row of a table", "risky", named)
    elif _MONGO.search(sql):
        yield _remote("drops a database", "destructive", named)
