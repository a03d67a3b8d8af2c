"""Says at import when a library is not the one that an adapter was tested with."""

import warnings
from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet

from rubricem_env.domain.errors import MissingExtraError


class UntestedVersionWarning(UserWarning):
    """A library's version lies outside the range that its adapter was tested with. It may work."""


def require_tested(package: str, tested: str, *, extra: str) -> None:
    """Look at the installed version; a warning with the range where it lies outside.

    Raises:
        MissingExtraError: the package is not installed.
    """
    try:
        installed = version(package)
    except PackageNotFoundError as cause:
        raise MissingExtraError(package, extra, f"the {extra} adapter") from cause
    warn_if_untested(package, installed, tested)


def warn_if_untested(package: str, installed: str, tested: str) -> None:
    """Warn if `installed` is not among the versions `tested`, a specifier such as ">=1.16,<1.17"."""
    if not SpecifierSet(tested).contains(installed, prereleases=True):
        warnings.warn(
            f"{package} {installed} is installed; the adapter was tested with {package} {tested}. "
            f"Install such a version if something does not fit: pip install '{package}{tested}'",
            UntestedVersionWarning,
            stacklevel=4,
        )
