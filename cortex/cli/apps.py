"""Loads an application: the modules, packages and files that define job types and tools."""

import importlib
import importlib.util
import os
import pkgutil
import re
import site
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

import cortex
from cortex.cli.options import PATH_CHARS_MAX, Options, Text
from cortex.cli.target import settings_from
from cortex.domain.errors import CortexError, UsageError
from cortex.durable.registry import Registry

_CORTEX: Final = Path(cortex.__file__).parent
_added: Final[list[Path]] = []
_HINT: Final = "give a module or package, such as shop.jobs, or a file, such as shop/jobs.py"
_NAMED: Final = "cortex.apps"
_NO_PARTS: Final = ("__main__", "conftest")
"""Modules of a package that define no jobs of its own; tests neither."""
_IMPORT: Final = re.compile(rb"^[ \t]*(?:from|import)[ \t]+cortex\b", re.MULTILINE)
_HINT_OF_PACKAGES: Final = "name the virtual environment that has it: --path DIR"


class App(Text):
    """Module, package or file of an application; shells complete files."""

    name = "app"

    def __init__(self) -> None:
        super().__init__(PATH_CHARS_MAX)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 -- click's
        param: click.Parameter,  # noqa: ARG002 -- click's
        incomplete: str,
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def app_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `app_options`, and arguments that do the same as --app: `cortex up app.py`."""
    named = click.argument(
        "apps_named",
        type=App(),
        metavar="[APP…]",
        nargs=-1,
        is_eager=True,
        expose_value=False,
        callback=_note_named,
    )
    return named(app_options(command))


def _note_named(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    context.meta[_NAMED] = given


def app_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --app, and --path for the packages that it imports."""
    app = click.option(
        "--app",
        "apps",
        type=App(),
        multiple=True,
        callback=_chosen,
        metavar="APP",
        help="Module, package or file with your own jobs and tools; repeatable [setting app].",
    )
    return app(path_option(command))


def path_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --path for the packages that an application imports."""
    path = click.option(
        "--path",
        type=click.Path(path_type=Path),
        multiple=True,
        expose_value=False,
        is_eager=True,
        callback=_add_each,
        metavar="DIR",
        help="Virtual environment with packages of the application; repeatable.",
    )
    return path(command)


def _add_each(_context: click.Context, _parameter: click.Parameter, folders: list[Path]) -> None:
    for folder in folders:
        try:
            add_packages(folder)
        except OSError as error:  # such as a name that is too long
            raise UsageError(f"--path {folder}: {error.strerror}") from error


def _chosen(
    context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    options = context.find_object(Options)
    given = (*context.meta.get(_NAMED, ()), *given)
    if given or options is None or context.resilient_parsing:
        return given
    words = (settings_from(options).app or "").split(",")
    return tuple(word.strip() for word in words if word.strip())


def add_packages(folder: Path) -> None:
    """Let applications import what is in a virtual environment, or in a folder of packages.

    Cortex's own packages win over packages of the same name there.
    """
    packages = folder
    if (folder / "pyvenv.cfg").is_file():
        own = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = folder / "lib" / own / "site-packages"
        if not packages.is_dir():
            others = " or ".join(sorted(each.name for each in folder.glob("lib/python*"))) or "none"
            raise UsageError(
                f"the virtual environment {folder} is for {others}, and this is {own}",
                hint=f"make it with {own} -m venv",
            )
    if not packages.is_dir():
        raise UsageError(f"--path {folder} is not a directory")
    site.addsitedir(str(packages.resolve()))
    _added.append(packages.resolve())


def added_packages() -> list[Path]:
    """Return the folders added so far, for other processes that load the application."""
    return [*_added]


def load_apps(specs: Sequence[str]) -> tuple[ModuleType, ...]:
    """Import an application: modules, files, and packages with their modules that import Cortex.

    Modules of tests in a package are left out. Raises `UsageError` as `load_app` does.
    """
    found: dict[ModuleType, None] = {}
    for spec in specs:
        module = load_app(spec)
        found |= dict.fromkeys([module, *_within(module)])
    return tuple(found)


def load_app(spec: str) -> ModuleType:
    """Import a dotted module, relative to the working directory, or a file by its path.

    What it prints meanwhile goes to stderr: stdout is for the command's data. Raises `UsageError`
    that names file and line of an error in the application's code.
    """
    load = partial(_load_file, _existing(spec)) if _is_file(spec) else partial(_load_module, spec)
    try:
        with _printing_to_stderr():
            return load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _refused(spec, error) from error


def refuse_absent(specs: Sequence[str]) -> None:
    """Raise `UsageError` for a file that does not exist, before anything is loaded."""
    for spec in specs:
        if _is_file(spec):
            _existing(spec)


def _is_file(spec: str) -> bool:
    return spec.endswith(".py") or "/" in spec or not spec


@contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """Send what is written to stdout to stderr, also by programs.

    The descriptor is moved, not `sys.stdout`: a logging handler that keeps that one writes to
    stdout afterwards, as its app wants.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def registry_of(specs: Sequence[str] = ()) -> Registry:
    """Return the built-in job types and those of an application."""
    return registry_with(load_apps(specs))


def registry_with(modules: Sequence[ModuleType]) -> Registry:
    """Return the built-in job types and those of loaded modules."""
    from cortex.jobs import builtin_registry

    registry = builtin_registry()
    registry.collect(*modules)
    return registry


def _within(package: ModuleType) -> Iterator[ModuleType]:
    for part in pkgutil.iter_modules(getattr(package, "__path__", ())):
        name = f"{package.__name__}.{part.name}"
        if part.name in _NO_PARTS or part.name.startswith("test"):
            continue
        if part.ispkg or _uses_cortex(name):
            module = load_app(name)
            yield module
            yield from _within(module)


def _uses_cortex(name: str) -> bool:
    """Return whether a module imports Cortex: others, such as scripts, are not imported."""
    found = importlib.util.find_spec(name)
    path = Path("" if found is None or found.origin is None else found.origin)
    return path.suffix == ".py" and _IMPORT.search(path.read_bytes()) is not None


def _existing(spec: str) -> Path:
    path = Path(spec)
    try:
        if path.is_file() or (path / "__init__.py").is_file():
            return path.resolve()
    except OSError as error:  # such as a name that is too long
        raise UsageError(f"app {spec!r}: {error.strerror}", hint=_HINT) from error
    raise UsageError(f"app {spec!r} does not exist", hint=_HINT)


def _load_file(file: Path) -> ModuleType:
    if file.is_dir():
        _prepend(str(file.parent))
        return importlib.import_module(file.name)
    _prepend(str(file.parent))
    name = file.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(file):
            return loaded
        name = f"cortex_app_{name}"  # an app file may share its name with another module
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise UsageError("this is not a Python file", hint=_HINT)
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _load_module(name: str) -> ModuleType:
    _prepend(str(Path.cwd()))
    return importlib.import_module(name)


def _prepend(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _refused(spec: str, error: BaseException) -> UsageError:
    if isinstance(error, SyntaxError):
        return UsageError(f"{error.filename}:{error.lineno}: {error.msg}")
    if isinstance(error, ModuleNotFoundError) and _is_within(spec, error.name):
        return UsageError(f"app {spec!r} is not found from {Path.cwd()}", hint=_HINT)
    place = _place(error) or spec
    if isinstance(error, CortexError):
        return UsageError(f"{place}: {error.message}", hint=error.hint)
    if isinstance(error, SystemExit):
        return UsageError(f"{place}: the app ends the process while it is imported")
    text = " ".join(str(error).split())
    return UsageError(
        f"{place}: {type(error).__name__}{f': {text}' if text else ''}",
        hint=_HINT_OF_PACKAGES if isinstance(error, ModuleNotFoundError) else None,
    )


def _is_within(spec: str, name: str | None) -> bool:
    """Whether a missing module is the application itself or a package around it."""
    return name is not None and f"{spec}.".startswith(f"{name}.")


def _place(error: BaseException) -> str | None:
    """Return file and line of the innermost frame outside Cortex and the import system."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not Path(frame.filename).is_relative_to(_CORTEX)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
