"""Physics and money of one deployment, and the search over all of them: pure Python and numpy."""

ENGINE_VERSION = "0.1.0"
