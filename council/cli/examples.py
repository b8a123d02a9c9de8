"""Examples of each command, for its ``--help``; a test parses each with the command's own parser."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": ("council review --inline", "council up"),
    "propose": (
        'council propose "Rotate the staging key" --inline',
        """council propose "Clean up" --action shell '{"command": "rm -rf /tmp/x"}'""",
    ),
    "review": ("council review main..HEAD", "git diff --cached | council review -"),
    "escalations": ("council escalations", "council escalations --json"),
    "answer": (
        'council answer 7f3a9c21 --approve --reason "the backup is checked"',
        'council answer 7f3a9c21 --reject --reason "not before Monday"',
    ),
    "cancel": ("council cancel 7f3a9c21", 'council cancel 7f3a9c21 --reason "done by hand"'),
    "tokens": ("council tokens", "council tokens --all --json"),
    "revoke": ("council revoke token_7f3a9c21", 'council revoke 7f3a9c21 --reason "the plan changed"'),
    "estimate": ('council estimate "Rotate the staging key"', "council estimate --file proposal.json --json"),
    "rfc": ("council rfc propose rfcs/retries.md", "council rfc review rfcs/retries.md"),
    "rfc propose": ("council rfc propose rfcs/retries.md", "council rfc propose rfcs/retries.md --json"),
    "rfc review": (
        "council rfc review rfcs/retries.md",
        "council rfc review rfcs/retries.md --inline --config council.toml",
    ),
    "rfc merge": ("council rfc merge rfcs/retries.md", "council rfc merge rfcs/retries.md --url council.db"),
    "demo": ("council demo", "council demo --inline"),
    "up": ("council up", "council up --name staging --config council.toml"),
    "down": ("council down", "council down --name staging --yes"),
    "status": ("council status", "council status --json | jq .seats"),
    "watch": ("council watch", "council watch --since 0 --once"),
    "budget": ("council budget", "council budget --name staging --json"),
    "top": ("council top", "council top --json"),
    "dashboard": ("council dashboard", "council dashboard --token --json | jq -r .dashboard.panel_link"),
    "dashboard open": ("council dashboard open", "council dashboard open --name staging"),
    "dashboard install": ("council dashboard install", "council dashboard install --address auto"),
    "cluster": ("council cluster check cluster.yaml", "council cluster check cluster.yaml --json"),
    "cluster check": ("council cluster check cluster.yaml", "council cluster check cluster.yaml --json"),
    "log": ("council log --since 2h --type decision", "council log --proposal 7f3a9c21 --json"),
    "show": ("council show 7f3a9c21", "council show '#12' --json"),
    "replay": ("council replay", "council replay --what-if quorum=3 --what-if without=lite"),
    "verify": ("council verify", "council verify --checkpoint checkpoint.json --key key.pub"),
    "checkpoint": ("council checkpoint checkpoint.json", "council checkpoint - --name staging"),
    "prove": ("council prove 7f3a9c21 proof.json", "council prove '#12' - --checkpoint checkpoint.json"),
    "validate": ("council validate episode.jsonl", "council validate a.json b.json --json"),
    "store": ("council store info", "council store export backup.jsonl"),
    "store migrate": ("council store migrate", "council store migrate --url postgresql://user@host/audit"),
    "store info": ("council store info", "council store info --url council.db --json"),
    "store gc": ("council store gc", "council store gc --url council.db"),
    "store export": ("council store export backup.jsonl", "council store export - | gzip > backup.jsonl.gz"),
    "store import": ("council store import backup.jsonl", "zcat backup.jsonl.gz | council store import -"),
    "schema": ("council schema list", "council schema export schemas"),
    "schema list": ("council schema list", "council schema list --json | jq -r '.schemas[].id'"),
    "schema export": ("council schema export schemas", "council schema export /tmp/schemas --json"),
    "init": ("council init --print", "council init --base-url http://127.0.0.1:11434/v1"),
    "config": ("council config", "council config --config council.toml --json"),
    "doctor": ("council doctor --offline", "council doctor --ray --json"),
    "rules": ("council rules list", "council rules test council.rules"),
    "rules list": ("council rules list", "council rules list --json | jq -r '.rules[].id'"),
    "rules show": ("council rules show py-sql-built", "council rules show docker-user-root --json"),
    "rules test": ("council rules test", "council rules test council.rules --json"),
    "rules new": ("council rules new no-direct-billing", "council rules new py-no-eval --language python"),
    "policy": ("council policy test shell 'command=terraform apply'", "council policy test action.json"),
    "policy test": (
        "council policy test shell 'command=terraform apply'",
        """council policy test write_file '{"path": "prod/x.tf"}' --agent deploy-bot""",
    ),
    "identity": ("council identity show", 'council identity propose-change charter.json --why "it is time"'),
    "identity show": ("council identity show", "council identity show --journal > charter.json"),
    "identity propose-change": (
        'council identity propose-change charter.json --why "it is time"',
        'council identity propose-change --rollback 720e6341 --why "too early"',
    ),
}


def examples(command: str) -> str:
    """The last paragraph of the command's help; ``command`` is its words, without ``council``."""
    return "\n".join(["Examples:", *(f"  {example}" for example in EXAMPLES[command])])
