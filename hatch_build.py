"""Builds the JupyterLab extension when devkit is installed or packed, and says where it goes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ExtensionHook(BuildHookInterface):
    """Called by hatchling before it puts a wheel together, an editable one too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        place = Path(self.root) / "extension" / "build.py"
        spec = importlib.util.spec_from_file_location("devkit_extension_build", place)
        assert spec is not None
        assert spec.loader is not None
        builder = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(builder)
        if not builder.fresh():
            builder.build()
        build_data["shared_data"].update(builder.shared_data())
