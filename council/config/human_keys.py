"""The humans who may answer escalations, and the keys they sign with.

A human has one key, and gives it to no council. Each council is given a key that is derived for it alone, so that the
key of one council is worthless in another (rules 1.12, 1.14).
"""

from __future__ import annotations

import getpass
import hmac
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from council.config.files import open_to_others, whole
from council.protocol.envelope import SENDER_PATTERN
from council.protocol.errors import CallerError, ConfigError, NotEnrolled, OperatorError

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig

KEY_BYTES = 32
# The key source of a human whom the settings do not name: the state folder of the current user.
KEPT = "kept"
_DOMAIN = b"council-runtime human v1"
_NAME = re.compile(SENDER_PATTERN.removesuffix("$"))


def state_dir(env: Mapping[str, str] | None = None) -> Path:
    """The folder for data of this user's councils that outlives a process: ``$XDG_STATE_HOME/council``.

    A relative path counts as unset, as in the XDG specification.
    """
    env = os.environ if env is None else env
    base = Path(env.get("XDG_STATE_HOME") or "")
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "council"


def current_user() -> str:
    """This user's name, in the form that senders' names have."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # without pwd, on Windows, it has only the environment
        user = "human"
    return re.sub(r"[^a-z0-9._-]", "-", user.lower()).lstrip("._-")[:64] or "human"


def keys_of_humans(config: CouncilConfig, council_id: str) -> dict[str, bytes]:
    """The humans who may answer in this council, each with the key for it; by default the user who launches it.

    Raises ConfigError if a key is missing or a name is taken, and OperatorError as ``human_key`` does.
    """
    from council.config.settings import contradictions  # so that importing the package stays quick

    sources = {current_user(): KEPT} if config.humans is None else config.humans
    clashes = contradictions({"humans": sources}, [seat.name for seat in config.seats])
    if clashes:
        raise _unfit(clashes[0][1])
    return {name: council_key(name, source, council_id) for name, source in sources.items()}


def answering_key(name: str, config: CouncilConfig, council_id: str) -> bytes:
    """The key with which ``name`` answers in one council. Raises as ``keys_of_humans`` does, and CallerError."""
    return council_key(name, (config.humans or {}).get(name, KEPT), council_id)


def enrolled_key(name: str, config: CouncilConfig, council_id: str, humans: Sequence[str]) -> bytes:
    """As ``answering_key``, for one of ``humans``. Raises NotEnrolled or CallerError for others."""
    if name not in humans:  # before a key is made for a name that can't use it
        raise not_enrolled(name, council_id, humans)
    return answering_key(name, config, council_id)


def council_key(name: str, source: str, council_id: str) -> bytes:
    """This human's key for one council, derived from the one that ``source`` gives (rules 1.14)."""
    own = human_key(name) if source == KEPT else key_from(name, source)
    return hmac.digest(own, _DOMAIN + council_id.encode(), "sha256")


def key_from(whose: str, source: str, kept: Path | None = None, *, setting: str = "humans") -> bytes:
    """The key that ``source`` names: ``kept`` (in the file of that name), ``file:/path`` or ``env:VARIABLE``.

    Raises ConfigError, which names ``setting``, if the variable holds no key. Raises OperatorError if the file can't
    be read or kept.
    """
    kind, _, where = source.partition(":")
    if kind == "env":
        return _from_environment(whose, where, setting)
    if kind == "file":
        return _read(whose, Path(where).expanduser(), "put a whole one there")
    assert kept is not None
    return kept_key(kept, whose)


def not_enrolled(name: str, council_id: str, humans: Sequence[str]) -> CallerError:
    """The error for a ``name`` that can't answer in that council. Raises CallerError if it is not a name."""
    _check_name(name)
    return NotEnrolled(
        f"{name!r} is not enrolled; those who may answer in {council_id}: {', '.join(humans) or 'nobody'}; answer "
        "as one of these, or name the human under humans and launch the council again",
        name=name,
        humans=list(humans),
    )


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise CallerError(
            f"{str(name)[:80]!a} is not a valid name of a human: 1 to 64 of a-z 0-9 . _ -, a letter or digit first"
        )


def _from_environment(name: str, variable: str, setting: str) -> bytes:
    try:
        key = bytes.fromhex(os.environ[variable])
    except KeyError:
        raise _unfit(
            f"the key of {name} should be in the variable {variable}, which is not set", setting
        ) from None
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        wrong = f"the variable {variable} holds no key of {name}: expected {2 * KEY_BYTES} hex digits"
        raise _unfit(wrong, setting)
    return key


def _unfit(problem: str, setting: str = "humans") -> ConfigError:
    return ConfigError(f"{setting}: {problem}", problems=(f"{setting}: {problem}",))


def human_key(name: str, folder: Path | None = None) -> bytes:
    """This human's key, created on first use, readable by its owner only.

    Raises OperatorError if the file can't be written, holds no key or is open to others, and CallerError if ``name``
    is not a sender's name.
    """
    _check_name(name)  # it names a file, and must not lead out of the folder
    path = (folder or state_dir()) / "humans" / f"{name}.key"
    return kept_key(path, name, ", or humans = {} for a council that nobody may answer")


def kept_key(
    path: Path, whose: str, otherwise: str = "", *, anew: str = "remove it to get a new one"
) -> bytes:
    """The key in the file ``path``, created on first use, readable by its owner only. Raises OperatorError.

    The message ends in ``otherwise`` if the key can't be kept, and in ``anew`` if it can't be used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            with whole(path, replace=False) as file:
                file.write(secrets.token_bytes(KEY_BYTES))
    except OSError as error:
        raise OperatorError(
            f"the key of {whose} can't be kept in {path}: {error}; set XDG_STATE_HOME to a folder that can be "
            f"written{otherwise}"
        ) from error
    return _read(whose, path, anew)


def _read(name: str, path: Path, otherwise: str) -> bytes:
    try:
        if open_to_others(path):
            raise OperatorError(f"{path} is open to others: chmod 600 it, or {otherwise}")
        with path.open("rb") as file:
            key = file.read(4_096)  # enough to say how much there is: it may be no file of keys at all
    except OSError as error:
        raise OperatorError(f"the key of {name} can't be read from {path}: {error.strerror}") from error
    if len(key) != KEY_BYTES:
        raise OperatorError(f"{path} holds {len(key)} bytes, a key has {KEY_BYTES}: {otherwise}")
    return key
