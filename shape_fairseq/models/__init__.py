"""fairseq models: importing this registers their architectures, as --user-dir does."""

from importlib import import_module
from pkgutil import iter_modules

from .. import compat  # noqa: F401 - first: it explains what is missing

for module in iter_modules(__path__):
    import_module(f".{module.name}", __name__)
