"""Judges single commands, given as words: which destroy data, and which are risky.

Words are evaluated as far as the script allows; unknown parts stay in them as ``${name}``, ``${name:?}`` (guarded
against being empty) or ``$(program)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from council.agents.scan.personal import words
from council.agents.scan.remote_rules import Grade, Judgement, judge_remote, judge_sql

SHELLS = words("sh bash zsh dash ksh ash fish")
INTERPRETERS = SHELLS | words("python python2 python3 perl ruby node php")
DOWNLOADERS = words("curl wget fetch aria2c lynx http https Invoke-WebRequest iwr irm")
SQL_CLIENTS = words("psql mysql mariadb sqlite3 sqlcmd cockroach clickhouse-client mongosh mongo snowsql bq")
PREFIXES_MAX = 12  # sudo env nohup …: real chains are shorter


@dataclass(slots=True)
class Scene:
    """The state of a script so far: variables, the directory, and whether unset variables stop it.

    ``looked_at`` are variables that a test has examined. ``is_whole``: the whole script so far is known, so a
    variable that is not set here is unset. ``cut`` are variables whose values are too long to keep.
    """

    variables: dict[str, str] = field(default_factory=dict)
    directory: str = ""
    stops_on_unset: bool = False
    looked_at: set[str] = field(default_factory=set)
    is_whole: bool = False
    cut: set[str] = field(default_factory=set)

    def set(self, name: str, value: str, chars_max: int) -> None:
        """Stores a variable's value, and whether it is longer than the stored part."""
        self.variables[name] = value[:chars_max]
        (self.cut.add if len(value) > chars_max else self.cut.discard)(name)


def base_name(word: str) -> str:
    """The program that a word names, without its folder."""
    return word.rsplit("/", 1)[-1]


# Prefixes

_TAKING = {  # options of each prefix that take a value
    "sudo": "-u -g -h -p -C -T -U -r -t -D --user --group --chdir", "doas": "-u -C", "exec": "-a",
    "env": "-u -C -S --unset --chdir", "time": "-f -o", "timeout": "-k -s --signal --kill-after", "nice": "-n",
    "ionice": "-c -n -p", "stdbuf": "-i -o -e", "strace": "-e -o -p -s", "xargs": "-I -n -P -L -d -s -E -a -i",
    "watch": "-n -d", "flock": "-w -E", "parallel": "-j",
    **dict.fromkeys(words("nohup setsid command builtin busybox chroot unbuffer caffeinate chronic"), ""),
}  # fmt: skip
_POSITIONALS = {"timeout": 1, "chroot": 1, "flock": 1}  # arguments of their own before the command


def is_prefix(word: str) -> bool:
    """Whether a program only runs the command in its words."""
    return base_name(word).lstrip("@") in _TAKING


def _strip_one(argv: list[str]) -> list[str] | None:
    """The command that a prefix runs; None if the first word is no prefix."""
    if not is_prefix(argv[0]):
        return None
    name = base_name(argv[0]).lstrip("@")
    if name == "command" and any(arg in {"-v", "-V"} for arg in argv[1:2]):
        return []  # it only shows the path of a program
    at = 1
    while at < len(argv):
        word = argv[at]
        if word == "--":
            at += 1
            break
        if word.startswith("-") and len(word) > 1:
            at += 2 if word in _TAKING[name].split() else 1
        elif name in {"env", "sudo"} and re.match(r"[A-Za-z_]\w*=", word):
            at += 1
        else:
            break
    return argv[at + _POSITIONALS.get(name, 0) :]


def _stripped(argv: list[str]) -> list[list[str]]:
    """The command, and the command after each prefix is removed."""
    stages = [argv]
    while stages[-1] and len(stages) <= PREFIXES_MAX and (inner := _strip_one(stages[-1])) is not None:
        stages.append(inner)
    return stages


def unwrap(argv: list[str]) -> list[str]:
    """The command after its prefixes (sudo, env, xargs, …)."""
    return _stripped(argv)[-1]


def prefixes(argv: list[str]) -> Iterator[Judgement]:
    """What the prefixes themselves mean."""
    for stage in _stripped(argv)[:-1]:
        if base_name(stage[0]) in {"sudo", "doas"}:
            yield "runs as root (sudo)", "notable"


def _has_letter(letter: str, word: str) -> bool:
    """Whether a word is short options, such as ``-euc``, and ``letter`` is among them."""
    return letter in word and re.fullmatch(r"-[a-z]+", word) is not None


def reads_stdin(argv: list[str]) -> bool:
    """Whether an interpreter with these arguments runs its standard input."""
    name = base_name(argv[0])
    is_shell = name in SHELLS
    for word in argv[1:]:
        if word in {"-", "-s", "/dev/stdin"} or (is_shell and _has_letter("s", word)):
            return True
        if not word.startswith("-"):
            return word.startswith("<(")
        if _has_letter("c", word) if is_shell else re.fullmatch(r"-(?:[cmerp]|ne|pe|-eval)", word):
            return False
    return True


_SSH_TAKING = words("-i -p -l -o -F -J -L -R -D -b -c -E -m -O -Q -S -W -w -B -I")


def nested_scripts(argv: list[str]) -> Iterator[str]:
    """Scripts in a command's words: of a shell's -c, eval, ssh, su, trap, find's -exec."""
    name, rest = base_name(argv[0]) if argv else "", argv[1:]
    if name in SHELLS or name in {"su", "runuser"}:
        for at, word in enumerate(rest[:-1]):
            if re.fullmatch(r"-[a-z]*c", word) or word == "--command":
                yield rest[at + 1]
                break
    elif name == "eval":
        yield " ".join(rest)
    elif name == "trap" and rest:
        yield rest[0]
    elif name == "ssh":
        at = 0
        while at < len(rest) and rest[at].startswith("-"):
            at += 2 if rest[at] in _SSH_TAKING else 1
        if rest[at + 1 :]:
            yield " ".join(rest[at + 1 :])
    elif name == "find":
        for at, word in enumerate(rest):
            if word in {"-exec", "-execdir", "-ok"} and base_name(" ".join(rest[at + 1 : at + 2])) in SHELLS:
                yield from nested_scripts(rest[at + 1 :])
                break
    elif name in {"kubectl", "docker", "podman", "oc"} and "exec" in rest:
        shell = next((at for at, word in enumerate(rest) if base_name(word) in SHELLS), len(rest))
        yield from nested_scripts(rest[shell:])


# Judgements


def judge(argv: list[str], scene: Scene) -> Iterator[Judgement]:
    """The dangers of one command. Updates ``scene`` for the next ones."""
    name = base_name(argv[0]).lstrip("@")
    rest = argv[1:]
    if name == "cd" and rest:
        scene.directory = rest[0]
    elif name in {"source", "."}:
        scene.is_whole = False  # it may set anything
    elif name == "set":
        for word in rest:
            if "u" in word and re.fullmatch(r"[-+][a-zA-Z]+", word):
                scene.stops_on_unset = word[0] == "-"
        if "nounset" in rest:
            scene.stops_on_unset = "+o" not in rest
    yield from _judge_download(name, rest)
    if rule := _RULES.get(name):
        yield from rule(name, rest, scene)
    yield from _judge_line(name, " ".join(rest))
    yield from judge_remote(name, rest)
    if name in SQL_CLIENTS:
        for word in rest:
            if " " in word:
                yield from judge_sql(word, " ".join(rest))
    if any(re.match(r"/dev/(?:tcp|udp)/", word) for word in rest):
        yield "opens a remote shell (/dev/tcp)", "destructive"


_SENT = re.compile(r"@(?:~|\$\{HOME\}|/root|/home|/etc/(?:passwd|shadow))|--post-file")
_PRIVATE = re.compile(r"\.ssh|\.aws|\.gnupg|\.kube|id_rsa|passwd|shadow|\.env\b")


def _judge_download(name: str, rest: list[str]) -> Iterator[Judgement]:
    if name.startswith("$(") and name[2:].rstrip(")") in DOWNLOADERS:
        yield "runs a download unread", "destructive"
    if name in INTERPRETERS or name in {"eval", "source", "."}:
        for word in rest:
            if any(f"{mark}({loader})" in word for loader in DOWNLOADERS for mark in "$<"):
                yield f"runs a download unread (by {name})", "destructive"
                return
    if name in {"curl", "wget"} and any(_SENT.search(word) and _PRIVATE.search(word) for word in rest):
        yield "sends private files away", "destructive"


_SYSTEM = words(
    "/etc /usr /var /bin /sbin /lib /lib64 /boot /opt /srv /dev /proc /sys /root /home /Users /Applications "
    "/System /Library /usr/bin /usr/lib /usr/sbin /usr/local /usr/share "
    "/var/lib /var/log /var/www /etc/ssh /etc/systemd "
    "/etc/nginx /etc/kubernetes /mnt /media /data /backup /backups /run /C: /c /mnt/c /boot/efi "
    "/usr/local/bin /var/backups /var/spool /var/lib/postgresql /var/lib/mysql /var/lib/mongodb /var/lib/docker "
    "/var/lib/redis /var/lib/etcd /var/lib/kubelet /var/lib/elasticsearch /etc/passwd /etc/shadow "
    "/etc/sudoers /etc/ssl"
)
_HOME = re.compile(r"(?:~[a-z0-9_-]{0,32}|\$\{HOME\}|/home/[^/*]{1,64}|/Users/[^/*]{1,64}|/root)")
_PRECIOUS = re.compile(r"/(?:\.ssh|\.gnupg|\.aws|\.kube|\.config|Documents|Desktop|Pictures)$")
_GIVEN = words(  # variables that CI systems and shells set, and that are never empty there
    "GITHUB_WORKSPACE RUNNER_TEMP TMPDIR CI_PROJECT_DIR WORKSPACE PWD OLDPWD BUILD_SOURCESDIRECTORY item"
)
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*|\d)\}")
_ANY_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*|\d)")


def variables_in(text: str) -> list[str]:
    """The variables that a piece of script names, in any form of expansion."""
    return _ANY_VARIABLE.findall(text)


def _wipes(target: str, scene: Scene) -> Judgement | None:
    """The effect of removing ``target`` recursively."""
    path = re.sub(r"/{2,}", "/", target)
    if scene.directory and path[:1] not in {"/", "~", "$", ""} and scene.directory[:1] in {"/", "~", "$"}:
        path = scene.directory.rstrip("/") + "/" + path.removeprefix("./")
    bare = re.sub(r"(?:/\.?\**|/\{[^{}]*\}|/\.)$", "", path)
    if bare in {"", "/"} and path:
        return "removes the whole file system", "destructive"
    if _HOME.fullmatch(bare):
        return "removes a home folder", "destructive"
    if bare in _SYSTEM:
        return f"removes {bare}", "destructive"
    if (home := _HOME.match(bare)) and _PRECIOUS.fullmatch(bare[home.end() :]):
        return "removes keys or documents of a home folder", "destructive"
    if _may_be_root(path, scene):
        # If everything before it is known, nothing prevents the variable from being empty.
        is_set_elsewhere = not scene.is_whole or any(name.isdigit() for name in _VARIABLE.findall(path))
        return "removes everything if a variable is empty", "risky" if is_set_elsewhere else "destructive"
    if bare in {"..", "../..", "../../.."}:
        return "removes folders outside of the project", "risky"
    if path in {".", "*", "./*", ".git", "./.git"} and not scene.directory:
        return "removes the whole project or its history", "risky"
    return None


def _may_be_root(path: str, scene: Scene) -> bool:
    """Whether unguarded variables, if they were empty, would leave ``/`` or ``/*``."""
    names = _VARIABLE.findall(path)
    if not names or scene.stops_on_unset or any(name in _GIVEN or name in scene.looked_at for name in names):
        return False
    emptied = _VARIABLE.sub("", path)
    return re.fullmatch(r"/+\.?\**", emptied) is not None


def _options(rest: list[str]) -> tuple[set[str], list[str]]:
    """(short letters and long names, operands) of a command's words."""
    options: set[str] = set()
    operands: list[str] = []
    for at, word in enumerate(rest):
        if word == "--":
            return options, operands + rest[at + 1 :]
        if word.startswith("--"):
            options.add(word.split("=", 1)[0])
        elif word.startswith("-") and len(word) > 1:
            options.update(word[1:])
        else:
            operands.append(word)
    return options, operands


def _rm(_name: str, rest: list[str], scene: Scene) -> Iterator[Judgement]:
    options, targets = _options(rest)
    if "--no-preserve-root" in options:
        yield "removes the whole file system", "destructive"
    recursive = options & {"r", "R", "--recursive"}
    for target in targets:
        found = _wipes(target, scene)
        if found and (recursive or "*" in target or target in {"/etc/passwd", "/etc/shadow", "/etc/sudoers"}):
            yield found


_FILTERS = words("-name -iname -path -mtime -mmin -regex -empty -user")


def _find(_name: str, rest: list[str], scene: Scene) -> Iterator[Judgement]:
    deletes = "-delete" in rest or any(
        a in {"-exec", "-execdir"} and base_name(b) in {"rm", "shred", "unlink"} for a, b in pairwise(rest)
    )
    is_filtered = not _FILTERS.isdisjoint(rest)
    for place in takewhile(lambda word: not word.startswith(("-", "(", "!")), rest if deletes else []):
        found = _wipes(place, scene)
        if found and not (is_filtered and found[1] != "destructive"):
            yield found[0], "risky" if is_filtered else found[1]


def _mode(name: str, rest: list[str], _scene: Scene) -> Iterator[Judgement]:
    options, operands = _options(rest)
    if not operands:
        return
    recursive = bool(options & {"R", "--recursive"})
    open_to_all = name == "chmod" and re.fullmatch(r"0?777|[augo]*\+rwx|o\+w|a\+w|[0-7]{0,1}666", operands[0])
    root = any(re.sub(r"/\*?$", "", path) in _SYSTEM | {"", "~", "${HOME}"} for path in operands[1:])
    if recursive and root:
        yield f"changes {'modes' if name == 'chmod' else 'owners'} of the whole system", "destructive"
    elif open_to_all and (recursive or root):
        yield "opens files to everybody (chmod -R 777)", "risky"
    elif open_to_all and operands[0] not in {"a+w", "+rwx"}:
        yield "opens a file to everybody (chmod 777)", "notable"


_SHARED_BRANCHES = words("main master production prod release trunk")


def _git(_name: str, rest: list[str], _scene: Scene) -> Iterator[Judgement]:
    while rest[:1] in (["-C"], ["-c"]):
        rest = rest[2:]
    if not rest:
        return
    options, operands = _options(rest[1:])
    if rest[0] == "push":
        refs = [ref for ref in operands[1:] if ref]
        by_force = bool(options & {"f", "--force"})
        lease = bool(options & {"--force-with-lease", "--force-if-includes"}) and not by_force
        forced = by_force or options & {"--mirror", "d", "--delete"} or any(ref[0] in "+:" for ref in refs)
        targets = {re.sub(r"^.*:|^\+|refs/heads/", "", ref) for ref in refs}
        shared = "--mirror" in options or bool(targets & _SHARED_BRANCHES)
        if forced and not lease:
            what = "rewrites a shared branch" if shared else "rewrites a branch"
            yield f"{what} (git push --force)", "risky" if shared or not operands[1:] else "notable"
        elif lease and shared:
            yield "rewrites a shared branch (git push --force-with-lease)", "notable"
    elif rest[0] == "reset" and "--hard" in options:
        yield "discards uncommitted work (git reset --hard)", "notable"
    elif rest[0] == "clean" and "f" in options:
        yield "removes untracked files (git clean)", "notable"
    elif rest[0] in {"filter-branch", "filter-repo"}:
        yield "rewrites history", "risky"


def _mv(_name: str, rest: list[str], scene: Scene) -> Iterator[Judgement]:
    operands = _options(rest)[1]
    if operands[-1:] == ["/dev/null"]:
        for target in operands[:-1]:
            found = _wipes(target, scene)
            if found:
                yield found


def _netcat(name: str, rest: list[str], _scene: Scene) -> Iterator[Judgement]:
    options, _ = _options(rest)
    if options & {"e", "c", "--exec", "--sh-exec"} and any(base_name(word) in SHELLS for word in rest):
        yield f"opens a remote shell ({name})", "destructive"


_RULES: dict[str, Callable[[str, list[str], Scene], Iterator[Judgement]]] = {
    "rm": _rm, "srm": _rm, "find": _find, "chmod": _mode, "chown": _mode, "chgrp": _mode, "git": _git, "mv": _mv,
    "nc": _netcat, "ncat": _netcat, "netcat": _netcat,
}  # fmt: skip

# The words of a single program as one line. The first matching pattern counts.
_DISK = r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|md|loop|mem|kmem|rdisk|\$\{)"
_GUARD_OFF = (
    r"(?=.*\b(?:firewalld|ufw|iptables|nftables|auditd|apparmor|fail2ban|falcon-sensor|clamav))"
    r"(?=.*\b(?:stop|disable|mask)\b)"
)
_UNGUARDS, _STOPS = "disables a firewall or guard", "shuts the machine down"
_LINES: tuple[tuple[str, str, str, Grade], ...] = (
    ("dd", rf"(?:^| )of={_DISK}", "overwrites a disk (dd)", "destructive"),
    ("mkfs wipefs shred blkdiscard sgdisk fdisk parted mkswap", rf"(?:^| ){_DISK}", "overwrites a disk ({})",
     "destructive"),
    ("kill", r" -1$", "ends every process", "destructive"),
    ("killall5", "", "ends every process", "destructive"),
    ("crontab", r"(?:^| )-r(?: |$)", "removes every scheduled job (crontab -r)", "risky"),
    ("systemctl service rc-service chkconfig", "^" + _GUARD_OFF, _UNGUARDS, "risky"),
    ("ufw", r"\b(?:disable|reset)\b", _UNGUARDS, "risky"),
    ("iptables ip6tables", r"(?:^| )(?:-F|--flush)\b|-P (?:INPUT|FORWARD) ACCEPT", _UNGUARDS, "risky"),
    ("nft", r"flush ruleset", _UNGUARDS, "risky"),
    ("setenforce", r"^(?:0|Permissive)(?: |$)", _UNGUARDS, "risky"),
    ("netsh", r"(?:^| )off(?: |$)", _UNGUARDS, "risky"),
    ("shutdown reboot halt poweroff", "", _STOPS, "risky"),
    ("tee", r"(?:^|/)authorized_keys\b", "lets somebody log in (authorized_keys)", "risky"),
    ("init", r"^[06](?: |$)", _STOPS, "risky"),
    ("systemctl", r"^(?:poweroff|reboot|halt)\b", _STOPS, "risky"),
)  # fmt: skip
_LINE_RULES = [
    (words(names), re.compile(find, re.DOTALL), kind, grade) for names, find, kind, grade in _LINES
]


def _judge_line(name: str, line: str) -> Iterator[Judgement]:
    program = "mkfs" if name.startswith("mkfs") else name
    for names, pattern, kind, grade in _LINE_RULES:
        if program in names and pattern.search(line):
            yield kind.format(name), grade
            return


def judge_write(target: str, *, append: bool) -> Iterator[Judgement]:
    """The effect of redirecting output to ``target``."""
    if re.match(_DISK, target):
        yield "overwrites a disk", "destructive"
    elif target in {"/etc/passwd", "/etc/shadow", "/etc/sudoers"} and not append:
        yield f"overwrites {target}", "destructive"
    elif base_name(target) == "authorized_keys":
        yield "lets somebody log in (authorized_keys)", "risky"
    elif re.match(r"/dev/(?:tcp|udp)/", target):
        yield "opens a connection by /dev/tcp", "risky"
