"""The files that Assay ships beside its code: the catalog's fixtures, the documentation's sources and its built site.

`catalog/data` has links to them in a checkout; a wheel has the files themselves there.
"""

from pathlib import Path
from typing import Final

_DATA: Final = Path(__file__).resolve().parent / "data"
FIXTURES: Final = (_DATA / "fixtures").resolve()
DOCS: Final = (_DATA / "docs").resolve()
SITE: Final = (_DATA / "site").resolve()  # absent until `make docs` or `make wheel` builds it
