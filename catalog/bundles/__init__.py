"""Signed bundles: catalog files and downloaded price sources, carried to a server that has no way out."""

from catalog.bundles.applied import CATALOG, FEEDS, apply, lines, undo
from catalog.bundles.archive import MOST_BYTES, Bundle, BundleError, new_key, pack, unpack
