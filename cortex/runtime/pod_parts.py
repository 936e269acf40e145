"""The parts of a pod besides its settings: job types, tools, model client, prices."""

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final

import attrs
import structlog
import trio

import cortex
from cortex.agent.confinement.means import Confiner
from cortex.agent.confinement.quota import BYTES_MAX, Quota
from cortex.agent.mcp.folders import remove_left_behind
from cortex.agent.mcp.of_jobs import servers_of
from cortex.agent.models.batch_api import BatchModels
from cortex.agent.models.client import ModelClient
from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.providers import Models, ModelTrouble
from cortex.agent.tools import BUILT_IN
from cortex.agent.tools.tool import tools_by_name
from cortex.agent.tools.toolbox import Toolbox, close_workspaces
from cortex.domain.confinement import Confinement
from cortex.domain.errors import UsageError
from cortex.domain.prices import LIST_PRICES, PriceTable
from cortex.durable.attempt import Tools
from cortex.durable.message_handlers import MessageHandler, handlers_by_name
from cortex.durable.registry import Registry
from cortex.jobs import builtin_registry
from cortex.runtime.surroundings import packages, problems
from cortex.store.codes import Code

CORTEX_VERSION: Final = f"cortex {cortex.__version__}"
"""Version of the code of a pod without an application."""
_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class PodParts:
    """What a pod is made of besides its settings."""

    registry: Registry
    client: ModelClient
    tools: Tools
    workspaces: Path
    batch_models: BatchModels | None = None
    """None: no calls are made in batches."""
    prices: PriceTable = LIST_PRICES
    handlers: Mapping[str, MessageHandler] = attrs.field(factory=dict)
    """Of messages, by name."""
    confinement: Confinement = Confinement.NONE
    """How programs of agents are confined."""
    code_version: str = CORTEX_VERSION
    """The application's code, for people."""
    packages: tuple[str, ...] = ()
    """The installed packages with their versions."""
    preload: Callable[[], Sequence[ModelTrouble]] | None = None
    """Slow imports, done in a thread once the pod is ready. A model call before waits for them."""

    @property
    def code(self) -> Code:
        """Everything for which this pod may hand a job back."""
        offered = self.tools.offer(self.tools.names)
        return Code(
            version=self.code_version,
            arguments=self.registry.schemas,
            tools={each["name"]: each.get("input_schema", {}) for each in offered},
            packages=self.packages,
        )


def standard_parts(
    *,
    apps: Sequence[ModuleType] = (),
    workspaces: Path,
    prices: PriceTable = LIST_PRICES,
    endpoints: Sequence[Endpoint] = (),
    hidden: tuple[Path, ...] = (),
    is_unsafe: bool = False,
    workspace_bytes: int = BYTES_MAX,
    code_version: str = CORTEX_VERSION,
) -> PodParts:
    """Return the parts of an ordinary pod: built-in and the apps' own jobs and tools, real models.

    `endpoints`: addresses of models besides those of the environment. `hidden`: paths that no
    program of an agent may see, besides the folder around the workspaces; `is_unsafe`: programs are
    not confined; `workspace_bytes`: how much disk a job may take.

    Raises `UsageError` when an app defines a job type or a tool whose name is taken.
    """
    close_workspaces(workspaces)
    registry = builtin_registry()
    tools = dict(BUILT_IN)
    registry.collect(*apps)
    for name, tool in tools_by_name(*apps).items():
        if tools.setdefault(name, tool) is not tool:
            raise UsageError(f"tool {name!r} of the app has the name of a built-in one")
        given = [field.type for field in attrs.fields(tool.arguments)]
        what = f"tool {name!r}"
        registry.resources.check(what, tool.run, requested=tool.requested, given=given)
    confiner = Confiner.chosen(hidden=(workspaces.parent, *hidden), is_unsafe=is_unsafe)
    models = Models(endpoints)
    return PodParts(
        registry=registry,
        client=models,
        batch_models=models,
        tools=Toolbox(
            tools,
            confiner,
            Quota(workspace_bytes),
            of_jobs=servers_of(map(registry.get, registry.names)),
        ),
        workspaces=workspaces,
        confinement=confiner.means,
        code_version=code_version,
        packages=packages(),
        prices=prices,
        handlers=handlers_by_name(*apps),
        preload=partial(_preload, models),
    )


def _preload(models: Models) -> Sequence[ModelTrouble]:
    for problem in problems():
        _log.warning("environment unusable", error=problem.message, hint=problem.hint)
    if count := remove_left_behind():
        _log.info("folders of killed pods removed", folders=count)
    return models.preload()


async def preload(work: Callable[[], Sequence[ModelTrouble]]) -> None:
    """Import the model client beside the first jobs: those without models need not wait."""
    for trouble in await trio.to_thread.run_sync(work, abandon_on_cancel=True):
        _log.warning(**attrs.asdict(trouble, filter=lambda _, value: value is not None))
    gc.freeze()  # as for the imports before
