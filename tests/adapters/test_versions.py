"""Said at import: a library outside the tested range, or one that is not there."""

import subprocess
import sys
import warnings

import pytest

from rubricem_env.adapters.session import require_tested, warn_if_untested
from rubricem_env.domain.errors import MissingExtraError


@pytest.mark.parametrize("installed", ["1.15.2", "1.17.0", "2.0.0rc1"])
def test_a_version_outside_the_range_is_warned_of_with_the_range(installed):
    with pytest.warns(UserWarning, match=rf"trl {installed} is installed; .* tested with trl >=1.16,<1.17"):
        warn_if_untested("trl", installed, ">=1.16,<1.17")


@pytest.mark.parametrize("installed", ["1.16.0", "1.16.3", "1.16.1.dev0"])
def test_a_version_in_the_range_is_silent(installed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_untested("trl", installed, ">=1.16,<1.17")


def test_an_installed_package_is_looked_up():
    with pytest.warns(UserWarning, match=r"tested with pytest <1"):
        require_tested("pytest", "<1", extra="trl")


def test_a_missing_library_is_named_with_the_line_that_installs_it():
    with pytest.raises(MissingExtraError, match=r"pip install 'rubricem\[trl\]'"):
        require_tested("no-such-library-here", ">=1", extra="trl")


def test_importing_an_adapter_without_its_library_says_how_to_install_it():
    code = "import sys, importlib.metadata as m\nm.distributions = lambda **k: iter(())\n"
    code += "import rubricem_env.adapters.session as v\n"
    code += "def gone(name): raise m.PackageNotFoundError(name)\nv.version = gone\nimport rubricem_env.adapters.gem"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError: the gem adapter needs gem-llm, which is not installed." in shown.stderr


RANGES = {
    "rubricem_agent.adapters.trl": "trl >=1.16,<1.17",
    "rubricem_env.adapters.verifiers": "verifiers >=0.4,<0.5",
    "rubricem_env.adapters.openenv": "openenv >=0.10,<0.11",
    "rubricem_env.adapters.skyrl": "skyrl-gym >=0.4,<0.5",
    "rubricem_env.adapters.gem": "gem-llm >=0.1,<0.2",
}


def test_every_adapter_says_at_import_that_its_library_is_of_another_version():
    code = "import importlib, importlib.metadata as m, sys, types\n"
    code += "m.version = lambda name: '99.0'\n"
    code += "sys.modules['openai'] = types.SimpleNamespace(AsyncOpenAI=None)\n"
    code += f"for name in {list(RANGES)}:\n"
    code += "  try: importlib.import_module(name)\n"
    code += "  except ImportError: print(name, 'is not here')\n"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = [line for line in shown.stderr.splitlines() if "the adapter was tested" in line]
    assert len(said) == len(RANGES)
    for line, tested in zip(said, RANGES.values(), strict=True):
        assert f"99.0 is installed; the adapter was tested with {tested}." in line
