"""Interactive charts: the data that the script draws, beside the SVG of pages without scripts."""
