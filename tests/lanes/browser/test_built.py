"""The committed bundle is, byte for byte, what its sources build with the locked packages."""

import shutil
import subprocess

import pytest

from rubricem_viewer.single_file import STATIC

WEB = STATIC.parent / "web"
BUILT = ("index.html", "viewer.js", "viewer.css", "built_from.json")


def test_a_build_from_the_sources_gives_the_committed_bundle(chromium, tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed; the bundle is compared with its sources by digest alone, in make test")
    web = tmp_path / "web"
    shutil.copytree(WEB, web, ignore=shutil.ignore_patterns("node_modules"))

    for command in (("npm", "ci", "--no-audit", "--no-fund"), ("npm", "run", "check"), ("npm", "run", "build")):
        subprocess.run(command, cwd=web, check=True, capture_output=True, timeout=240)

    made = {name: (tmp_path / "static" / name).read_bytes() for name in BUILT}
    assert {name for name in BUILT if made[name] != (STATIC / name).read_bytes()} == set()
