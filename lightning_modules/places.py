"""Folders: the project, its cache, the user's data sets."""

import os
from pathlib import Path


def project() -> Path:
    """The root of the checkout: the folder that holds ``lightning_modules/``."""
    return Path(__file__).resolve().parent.parent


def cache() -> Path:
    """The folder of token stores, tokenizers and work folders of runs, all of which can be rebuilt.

    It is ``ABLATIONS_CACHE``, or ``.cache`` in the project.
    """
    path = os.environ.get("ABLATIONS_CACHE") or project() / ".cache"
    return Path(os.path.realpath(os.path.expanduser(path)))  # unlike pathlib's, these take any text


def data_home() -> Path | None:
    """The folder ``ABLATIONS_DATA`` with data sets in their official formats; None if it is not set."""
    path = os.environ.get("ABLATIONS_DATA")
    return Path(path).expanduser().resolve() if path else None
