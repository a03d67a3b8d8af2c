from rubricem_env.tools.base import (
    FunctionTool as FunctionTool,
    LocalToolbox as LocalToolbox,
    Tool as Tool,
    Toolbox as Toolbox,
)
from rubricem_env.tools.cache import CachedTool as CachedTool
from rubricem_env.tools.corpus_index import CorpusIndex as CorpusIndex
from rubricem_env.tools.corpus_search import (
    Corpus as Corpus,
    Document as Document,
    DocumentSearch as DocumentSearch,
    offline_toolbox as offline_toolbox,
)
from rubricem_env.tools.engines import ENGINES as ENGINES
from rubricem_env.tools.failures import ToolFailure as ToolFailure
from rubricem_env.tools.google_search import GeminiGoogleSearch as GeminiGoogleSearch
from rubricem_env.tools.guard import GuardedTool as GuardedTool
from rubricem_env.tools.http import SearchEngine as SearchEngine
from rubricem_env.tools.mcp_client import McpLink as McpLink, McpToolbox as McpToolbox
from rubricem_env.tools.mcp_server import tool_server as tool_server
from rubricem_env.tools.pages.fetch import PageFetcher as PageFetcher, WebPages as WebPages
from rubricem_env.tools.record import RecordingToolbox as RecordingToolbox, ReplayToolbox as ReplayToolbox
from rubricem_env.tools.spec import Kind as Kind, Parameter as Parameter, ToolSpec as ToolSpec
from rubricem_env.tools.tables.run_sql import RunSql as RunSql
