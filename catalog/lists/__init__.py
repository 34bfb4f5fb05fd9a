"""The catalog's lists: filters, facets, tables, addresses, saved views and exports."""

from catalog.lists import address, drawn, export, filters, saved, table_html, tables
