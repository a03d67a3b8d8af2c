"""The page as it was built: one script, one style. The sources are in `web`; `make viewer-bundle` builds them anew."""

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

STATIC = Path(__file__).parent / "static"
WEB = Path(__file__).parent / "web"
_OWN = ("package.json", "package-lock.json", "vite.config.js", "index.html")


class Bundle(NamedTuple):
    """What a browser runs."""

    script: str
    style: str

    @property
    def policy(self) -> str:
        """A content security policy under which these two run, and nothing else does."""
        return (
            f"default-src 'none'; script-src '{source_hash(self.script)}'; style-src '{source_hash(self.style)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        )


@cache
def load_bundle() -> Bundle:
    """The bundle that this release ships."""
    script = (STATIC / "viewer.js").read_text(encoding="utf-8")
    return Bundle(script=script, style=(STATIC / "viewer.css").read_text(encoding="utf-8"))


def source_hash(text: str) -> str:
    """The name under which a content security policy lets an inline script or style in."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def recorded_sources() -> str:
    """The digest of the sources that the shipped bundle was built from."""
    record: dict[str, str] = json.loads((STATIC / "built_from.json").read_text(encoding="utf-8"))
    return record["sources"]


def source_digest(web: Path = WEB) -> str:
    """The digest of the sources as they are: path, length and bytes of each file, by path; as `web/vite.config.js` has it."""
    inner = (path for path in (web / "src").rglob("*") if path.is_file())
    names = sorted([path.relative_to(web).as_posix() for path in inner] + list(_OWN))
    digest = hashlib.sha256()
    for name in names:
        content = (web / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
