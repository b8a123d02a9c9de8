"""The languages that the static checks know, and what kind of file a path names.

``language_of`` gives None for a file in no language that a check reads. Nobody may approve such a file by silence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from council.agents.scan.change import FileChange


@dataclass(frozen=True, slots=True)
class Language:
    """A language. ``ast_grep`` is the name under which ast-grep parses it; None if only its lines are read.

    ``extensions`` have no dot. ``names`` are globs on the last part of a path, or on the whole path after "/" if they
    hold a "/". ``programs`` are interpreters in a first line "#!". All are in lower case.
    """

    name: str
    ast_grep: str | None
    extensions: tuple[str, ...]
    names: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


def _row(name: str, ast_grep: str | None, extensions: str, names: str = "", programs: str = "") -> Language:
    return Language(name, ast_grep, *(tuple(words.split()) for words in (extensions, names, programs)))


# The first row that fits counts. Names are tried before extensions.
LANGUAGES: tuple[Language, ...] = (
    _row("python", "python", "py pyi pyw pth", "sconstruct sconscript wscript", "python pypy uv"),
    _row("javascript", "javascript", "js mjs cjs jsx", "", "node nodejs bun"),
    _row("typescript", "typescript", "ts mts cts", "", "deno ts-node tsx"),
    _row("tsx", "tsx", "tsx"),
    _row("go", "go", "go"),
    _row("java", "java", "java"),
    _row("kotlin", "kotlin", "kt kts", "", "kotlin"),
    _row("ruby", "ruby", "rb rake gemspec ru", "gemfile rakefile vagrantfile podfile brewfile", "ruby"),
    _row("php", "php", "php phtml php5 php7 inc", "", "php"),
    _row("csharp", "csharp", "cs csx", "", "dotnet-script"),
    _row(
        "bash", "bash", "sh bash zsh ksh bats envrc",
        ".bashrc .bash_profile .bash_aliases .profile .zshrc .zprofile .zshenv .envrc apkbuild pkgbuild",
        "sh bash zsh ksh dash ash bats",
    ),
    _row("hcl", "hcl", "tf tfvars hcl"),
    _row("yaml", "yaml", "yml yaml", ".clang-format .clang-tidy .yamllint"),
    _row("json", "json", "json jsonc json5 ipynb webmanifest", "composer.lock pipfile.lock .babelrc .eslintrc"),
    _row("c", "c", "c h"),
    _row("cpp", "cpp", "cc cpp cxx hh hpp hxx ipp"),
    _row("rust", "rust", "rs"),
    _row("swift", "swift", "swift"),
    _row("scala", "scala", "scala sc sbt"),
    _row("lua", "lua", "lua", "", "lua luajit"),
    _row("html", "html", "html htm xhtml vue svelte"),
    _row("css", "css", "css scss less"),
    _row("dockerfile", None, "dockerfile containerfile", "dockerfile* containerfile*"),
    _row("nginx", None, "nginx nginxconf", "nginx*.conf */nginx/*.conf */sites-available/* */sites-enabled/*"),
    _row("makefile", None, "mk mak", "makefile* gnumakefile*", "make"),
    _row("sql", None, "sql ddl dml psql pgsql"),
    _row("toml", None, "toml", "pipfile cargo.lock poetry.lock uv.lock"),
    _row("env", None, "env", ".env*"),
    _row(
        "ini", None, "ini cfg conf cnf properties service timer socket desktop editorconfig",
        ".npmrc .pypirc .netrc .gitconfig .gitmodules .editorconfig .flake8 .coveragerc sshd_config ssh_config",
    ),
    _row("cron", None, "cron crontab", "crontab */cron.d/*"),
    _row("xml", None, "xml xsd xsl xslt svg plist csproj fsproj vbproj props targets config resx pom"),
    _row("markdown", None, "md mdx markdown"),
    _row("rst", None, "rst adoc asciidoc tex"),
    _row("template", None, "j2 jinja jinja2 tmpl tpl erb ejs hbs mustache twig"),
    _row("graphql", None, "graphql gql graphqls"),
    _row("protobuf", None, "proto"),
    _row(
        "text", None, "txt text csv tsv log lock sum mod work diff patch pub crt pem",
        "license license-* licence notice authors copying contributors maintainers codeowners changelog readme "
        ".gitignore .gitattributes .dockerignore .npmignore .prettierignore .eslintignore .helmignore .gitkeep "
        ".nvmrc .python-version .ruby-version .node-version .tool-versions .mailmap version",
    ),
)  # fmt: skip
BY_NAME = {language.name: language for language in LANGUAGES}
_BY_EXTENSION = {extension: language for language in reversed(LANGUAGES) for extension in language.extensions}
_BY_PROGRAM = {program: language for language in reversed(LANGUAGES) for program in language.programs}
_PLAIN = {name: each for each in reversed(LANGUAGES) for name in each.names if "*" not in name}
_GLOBS = tuple((glob, language) for language in LANGUAGES for glob in language.names if "*" in glob)
_PATH_CHARS_MAX = 4_096  # the longest path that Linux opens
_SHEBANG = re.compile(
    r"#!\s{0,9}(?:\S{0,200}/env\s{1,9}(?:-\S{1,20}\s{1,9}|\w{1,80}=\S{0,200}\s{1,9}){0,5})?(?:\S{0,200}/)?([A-Za-z-]{1,40})"
)

_TESTS = re.compile(
    r"(?:^|/)(?:[Tt]ests?|testing|spec|specs|__tests__|testdata|fixtures?|mocks?|e2e|android-tests?)/|(?:^|/)(?:test_[^/]{1,200}|conftest\.py)$|"
    r"[._](?:test|spec)\.[a-z]{1,4}$|_(?:test|spec)\.[a-z]{1,4}$|"
    r"(?:^|/)src/(?:test|[a-z]{1,40}Test)/|[a-z0-9](?:Tests?|IT|Spec)\.(?:java|kts?|scala|php|cs|swift)$"
)
_DOCS = re.compile(
    r"\.(?:md|mdx|markdown|rst|adoc|asciidoc|tex)$|(?:^|/)(?!(?:[\w.-]{0,80}requirements|constraints|CMakeLists)[^/]{0,80}$)[^/]{0,200}\.txt$|(?:^|/)(?:AUTHORS|CODEOWNERS|LICENSE|MAINTAINERS|NOTICE|CONTRIBUTORS)$"
)
_GENERATED = re.compile(
    r"(?:^|/)(?:package-lock\.json|yarn\.lock|pnpm-lock\.yaml|poetry\.lock|uv\.lock|Pipfile\.lock|Cargo\.lock|go\.sum|"
    r"composer\.lock|Gemfile\.lock|flake\.lock)$|_pb2(?:_grpc)?\.pyi?$|\.min\.(?:js|css)$|\.(?:map|snap)$|\.pb\.go$"
)
_GENERATED_HEAD = re.compile(r"generated by|do not edit|@generated|autogenerated", re.IGNORECASE)


def language_of(path: str, first_line: str = "") -> Language | None:
    """The language of a file by its name, or by a first line "#!" if its name is of no programming language."""
    whole = "/" + path[-_PATH_CHARS_MAX:].lower()
    last = whole.rsplit("/", 1)[-1]
    named = _PLAIN.get(last)
    if named is None:
        fits = (each for glob, each in _GLOBS if fnmatchcase(whole if "/" in glob else last, glob))
        named = _BY_EXTENSION.get(last.rpartition(".")[2]) if "." in last else None
        # A glob such as "makefile*" says less than the extension of a programming language.
        named = named if named is not None and named.ast_grep else next(fits, named)
    if named is None or named.ast_grep is None:
        program = _SHEBANG.match(first_line[:1_000])
        return _BY_PROGRAM.get(program[1].lower(), named) if program else named
    return named


def is_test(path: str) -> bool:
    """Whether a file is part of a project's tests, by its path."""
    return _TESTS.search(path) is not None


def is_docs(path: str) -> bool:
    """Whether a file is documentation, by its path."""
    return _DOCS.search(path) is not None


def has_generated_name(path: str) -> bool:
    """Whether a tool writes files of that name, such as lock files."""
    return _GENERATED.search(path) is not None


def is_generated(change: FileChange) -> bool:
    """Whether a tool wrote the file: by its name, or by a statement in its first lines."""
    head = " ".join(text[:200] for number, text in change.added[:5] if number <= 5)
    return has_generated_name(change.path) or _GENERATED_HEAD.search(head) is not None
