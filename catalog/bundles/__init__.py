"""Signed bundles: catalog files and downloaded price sources, carried to a server that has no way out."""
