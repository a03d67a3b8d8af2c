"""Services that read web pages in place of `WebPages`: the Jina reader, and a Crawl4AI server of one's own.

The address of a page goes to the service only after the same check as for a page that is fetched from here.
"""

from typing import Any
from urllib.parse import quote

import httpx2
from pydantic import SecretStr

from rubricem_env.domain.trajectory import Snippet
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.http import ask_json, open_json_client
from rubricem_env.tools.pages.public_addresses import Resolver, pin, resolve
from rubricem_env.tools.pages.reader import MAX_TEXT

JINA_URL = "https://r.jina.ai"


class JinaPages:
    """The Jina reader, https://r.jina.ai: it works without a key at a low rate."""

    name = "the Jina reader"
    """The name of the service in messages."""

    def __init__(self, url: str = JINA_URL, *, key: SecretStr | None = None, resolver: Resolver = resolve) -> None:
        self._url = url.rstrip("/")
        self._client = open_json_client({"authorization": f"Bearer {key.get_secret_value()}"} if key else {})
        self._resolver = resolver

    async def read(self, url: str) -> Snippet:
        """The page, as the service reads it."""
        address = str((await pin(url, self._resolver))[0])
        title, text = await ask_json(self._client, self._request(address), name=self.name, read=self._content)
        return Snippet(text=text.strip()[:MAX_TEXT], title=title[:1_000], url=address)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _request(self, address: str) -> httpx2.Request:
        return self._client.build_request("GET", f"{self._url}/{quote(address, safe=':/?&=%')}")

    def _content(self, reply: Any) -> tuple[str, str]:
        """The title and the text of a reply; raises KeyError or TypeError where it is malformed."""
        return reply["data"].get("title") or "", reply["data"]["content"] + ""


class Crawl4aiPages(JinaPages):
    """A Crawl4AI server, by its endpoint /md with the filter "fit": the main content as Markdown."""

    name = "the Crawl4AI server"

    def _request(self, address: str) -> httpx2.Request:
        return self._client.build_request("POST", f"{self._url}/md", json={"url": address, "f": "fit"})

    def _content(self, reply: Any) -> tuple[str, str]:
        if not reply["success"]:
            raise ToolFailure(f"{self.name} could not read the page.")
        return "", reply["markdown"] + ""
