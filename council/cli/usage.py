"""Says what is wrong with a command line, for the errors that the option parser finds."""

from __future__ import annotations

import difflib
import re
from typing import Any

from council.cli.options import EXAMPLES


def usage_text(error: Any) -> str:
    """The text of an error of typer's parser; empty if the parser printed the help instead."""
    context = getattr(error, "ctx", None)
    said = _said(error, context).rstrip(".")
    return f"{said} (see {context.command_path} --help)" if said and context else said


def _said(error: Any, context: Any) -> str:
    # By name, because typer does not export all classes of its parser's errors.
    match type(error).__name__:
        case "MissingParameter" if error.param is not None:
            about = (getattr(error.param, "help", None) or "").rstrip(".")
            return f"{_label(error.param)} is missing" + (
                f": {about[:1].lower()}{about[1:]}" if about else ""
            )
        case "BadParameter" if error.param is not None:
            return f"{_label(error.param)}: {_bad(error)}"
        case "BadOptionUsage":
            return _option(error)
        case "NoSuchOption":
            near = difflib.get_close_matches(error.option_name, error.possibilities or (), n=1)
            return f"there is no option {error.option_name}" + (f"; did you mean {near[0]}?" if near else "")
    message = str(error.format_message() if hasattr(error, "format_message") else error)
    extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL)
    if extra is None:
        return message.replace("No such command", "there is no command").replace(". Did", "; did")
    takes = context is not None and any(each.name == "summary" for each in context.command.params)
    return f"unexpected argument '{extra[1]}'" + (": put a text of several words in quotes" if takes else "")


def _label(param: Any) -> str:
    """``--timeout`` for an option, ``ID`` for an argument."""
    if param.param_type_name == "option":
        return str(max(param.opts, key=len))
    return str(param.metavar or param.name.upper()).partition("|")[0].strip("[]")


def _bad(error: Any) -> str:
    """Says what is wrong with a value. pydantic checks it for typer; its words are replaced."""
    from pydantic import ValidationError

    from council.protocol.wording import fault_text

    if isinstance(error.__cause__, ValidationError):
        fault = error.__cause__.errors()[0]
        if fault["type"] != "value_error":
            return fault_text(fault["type"], fault.get("ctx", {}), fault["input"])
    message = str(error.message).removeprefix("Value error, ").rstrip(".")
    found, *known = re.findall("'([^']*)'", message) or [""]
    near = difflib.get_close_matches(found, known, n=1)
    return message + (f"; did you mean '{near[0]}'?" if near else "")


def _option(error: Any) -> str:
    """An option with too few values, or with one that takes none."""
    name, count = error.option_name, re.search("[0-9]+", error.message)
    if "does not take" in error.message:
        return f"{name} takes no value"
    example = f", for example {EXAMPLES[name]}" if name in EXAMPLES else ""
    return f"{name} needs {f'{count[0]} values' if count else 'a value'}{example}"
