"""Which language a file is in, by its name or its first line."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Language:
    """``suffix`` is what ast-grep knows its files by, "" if it has no grammar for them.

    ``opening`` is put in front of a fragment, ``level`` above lines that are indented deeper than later ones.
    """

    name: str
    suffix: str = ""
    names: tuple[str, ...] = ()
    shebangs: tuple[str, ...] = ()
    opening: str = ""
    level: str = ""


LANGUAGES = (
    Language("python", ".py", (".py", ".pyi", ".pyw"), ("python",), level="if 1:"),
    Language("javascript", ".js", (".js", ".mjs", ".cjs", ".jsx"), ("node",)),
    Language("typescript", ".ts", (".ts", ".mts", ".cts")),
    Language("tsx", ".tsx", (".tsx",)),
    Language("go", ".go", (".go",)),
    Language("java", ".java", (".java",)),
    Language("kotlin", ".kt", (".kt", ".kts")),
    Language("ruby", ".rb", (".rb", ".rake", ".gemspec", "Gemfile", "Rakefile"), ("ruby",)),
    Language("php", ".php", (".php", ".phtml"), ("php",), opening="<?php "),
    Language("csharp", ".cs", (".cs",)),
    Language("bash", ".sh", (".sh", ".bash"), ("sh", "bash", "dash", "zsh", "ksh")),
    Language("hcl", ".hcl", (".tf", ".hcl", ".tfvars")),
    Language("yaml", ".yml", (".yml", ".yaml"), level="_:"),
    Language("json", ".json", (".json",)),
    Language("c", ".c", (".c", ".h")),
    Language("cpp", ".cpp", (".cc", ".cpp", ".cxx", ".hpp", ".hh")),
    Language("rust", ".rs", (".rs",)),
    Language("swift", ".swift", (".swift",)),
    Language("scala", ".scala", (".scala",)),
    Language("lua", ".lua", (".lua",)),
    Language("html", ".html", (".html", ".htm", ".vue", ".svelte")),
    Language("css", ".css", (".css",)),
    Language("sql", "", (".sql",)),
    Language("dockerfile", "", ("Dockerfile", "Containerfile", ".dockerfile")),
    Language("nginx", "", ("nginx.conf",)),
    Language("makefile", "", ("Makefile", "makefile", "GNUmakefile", ".mk")),
    Language("toml", "", (".toml",)),
    Language("ini", "", (".ini", ".cfg", ".conf", ".env", ".properties")),
)
BY_NAME = {language.name: language for language in LANGUAGES}
_BY_END = {name: language for language in LANGUAGES for name in language.names}
_SHEBANG = re.compile(r"#!\s*\S*?([a-z]+)[\d.]*(?:\s+([a-z]+)[\d.]*)?\s*$")


def language_of(path: str, first_line: str = "") -> Language | None:
    """The language of a file, or None if nobody here reads it."""
    name = path.rsplit("/", 1)[-1]
    stem, dot, end = name.rpartition(".")
    if found := _BY_END.get(name) or _BY_END.get(name.split(".")[0]) or _BY_END.get(dot + end.lower()):
        return found
    if match := _SHEBANG.match(first_line[:200]):
        for language in LANGUAGES:
            if match[2] in language.shebangs or match[1] in language.shebangs:
                return language
    return None
