"""Where things lie: the project, its cache, the user's data sets."""

import os
from pathlib import Path


def project() -> Path:
    """The root of the checkout: the folder that holds ``lightning_modules/``."""
    return Path(__file__).resolve().parent.parent


def cache() -> Path:
    """Token stores, tokenizers and the work folders of runs: everything that can be made again.

    ``ABLATIONS_CACHE``, or ``.cache`` in the project.
    """
    return Path(os.environ.get("ABLATIONS_CACHE") or project() / ".cache").expanduser().resolve()


def data_home() -> Path | None:
    """The folder of data sets in their official formats that ``ABLATIONS_DATA`` names, if it is set."""
    named = os.environ.get("ABLATIONS_DATA")
    return Path(named).expanduser().resolve() if named else None
