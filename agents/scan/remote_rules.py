"""Judges commands and SQL by their effect on clusters, clouds and databases.

A command weighs less if it names a test or staging system, and more if it names production.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from council.agents.scan.personal import words

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


def _weighed(kind: str, grade: Grade, command: str) -> Judgement:
    """The grade of a removal, by what the words around it say about its reach."""
    graded: dict[str, Grade] = {"limited": "notable", "wide": "destructive"}
    return kind, graded.get(reach(command), grade)


_LARGE = words("ns namespace namespaces pv pvc persistentvolumeclaim crd node nodes project")
_BLINDLY = re.compile(r"--?(?:auto-approve|force|yes|y)(?:=true)?|-f|-y")


def judge_remote(name: str, rest: list[str]) -> Iterator[Judgement]:
    """What a command removes on other systems."""
    command = " ".join(rest)
    verbs = [word for word in rest if not word.startswith("-")]
    grade: Grade = "risky"
    match name, verbs:
        case "kubectl" | "oc", _ if "delete" in verbs:
            kind, grade = "deletes a resource (kubectl)", "notable"
            is_all = not {"--all", "-A", "--all-namespaces"}.isdisjoint(rest)
            if is_all or any(re.split(r"[/,]", word)[0] in _LARGE for word in verbs):
                kind, grade = "deletes a namespace, volume or everything (kubectl)", "destructive"
        case "terraform" | "tofu" | "terragrunt" | "pulumi" | "cdk", _ if "destroy" in rest:
            kind = f"destroys infrastructure ({name})"
            grade = "destructive" if any(map(_BLINDLY.fullmatch, rest)) else "risky"
        case "aws", ["s3", "rb", *_]:
            kind, grade = "removes a bucket (aws s3 rb)", "destructive" if "--force" in rest else "risky"
        case "aws", ["s3", "rm", *_] if "--recursive" in rest:
            kind = "removes a bucket's content (aws s3 rm)"
        case "aws", [service, verb, *_] if re.match(r"(?:delete|terminate|deregister)-|schedule-key", verb):
            kind = f"deletes a cloud resource (aws {service})"
        case "gcloud" | "az" | "doctl" | "heroku" | "flyctl" | "fly", _ if re.search(
            r"(?:^| |:)(?:delete|destroy|purge)\b", command
        ):
            kind = f"deletes a cloud resource ({name})"
        case ("gsutil", ["rm" | "rb", *_]) | ("helm", ["uninstall" | "delete", *_]):
            kind = f"deletes a remote resource ({name})"
        case "dropdb" | "mysqladmin", _ if name == "dropdb" or "drop" in verbs:
            kind, grade = "drops a database", "destructive"
        case "redis-cli", _ if any(word.lower() in {"flushall", "flushdb"} for word in verbs):
            kind, grade = "empties a database (redis)", "destructive"
        case "docker" | "podman", _ if "prune" in verbs and "--volumes" in rest:
            yield "removes volumes (docker prune)", "risky"  # of this machine, whatever their names
            return
        case _:
            return
    yield _weighed(kind, grade, command)


_SQL_DROP = re.compile(r"\bdrop\s+(database|schema|table)\b|\btruncate\s+(?:table\s+)?\w", re.IGNORECASE)
_SQL_ALL = re.compile(r"\bdelete\s+from\s+[\w.\"`]+\s*(?:;|$|\"|')", re.IGNORECASE)
_SQL_COMMENT = re.compile(r"--[^\n]*|/\*[^*]*\*/")
_MONGO = re.compile(r"\.dropDatabase\(|\.drop\(\)")


def judge_sql(sql: str, around: str = "") -> Iterator[Judgement]:
    """What an SQL text destroys. ``around`` is the command that carries it, for its reach."""
    sql = _SQL_COMMENT.sub(" ", sql)
    named = f"{sql} {around}"
    if match := _SQL_DROP.search(sql):
        if (match.group(1) or "").lower() in {"database", "schema"}:
            yield _weighed("drops a database", "destructive", named)
        else:
            yield _weighed("drops or empties a table", "risky", named)
    elif _SQL_ALL.search(sql):
        yield _weighed("deletes every row of a table", "risky", named)
    elif _MONGO.search(sql):
        yield _weighed("drops a database", "destructive", named)
