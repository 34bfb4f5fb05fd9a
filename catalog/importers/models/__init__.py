"""Reads models from config.json or the Hugging Face hub."""

from catalog.importers.models import hf, hub, model_files
from catalog.importers.models.model_files import ModelFiles
