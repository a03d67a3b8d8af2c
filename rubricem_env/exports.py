"""The public names of a package, listed in its stub `__init__.pyi` and imported on first use.

Type checkers read the stub. At run time a name's module is imported when the name is first used, so that a package can
offer names whose modules need optional libraries, and importing the package stays cheap.
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path


def lazy_exports(package: str, init_file: str) -> Callable[[str], object]:
    """The `__getattr__` of the package whose `__init__.py` is `init_file`. It answers for `__all__` too."""
    stub = Path(init_file).with_suffix(".pyi")

    def load(name: str) -> object:
        homes = exported_names(stub, package)
        if name == "__all__":
            return sorted(homes)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


@cache
def exported_names(stub: Path, package: str) -> dict[str, str]:
    """Each name that the stub of `package` imports, with the module that defines it."""
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    homes = {node: resolve_name(f"{'.' * node.level}{node.module}", package) for node in imports}
    return {alias.name: home for node, home in homes.items() for alias in node.names}
