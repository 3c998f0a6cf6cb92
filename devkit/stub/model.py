"""The user's model in this process: import it, complete its config, initialize, execute, finalize.

Every call into user code starts in this file, so that `failures` knows where user code ends. What
comes in and goes out over sockets is `process`'s business.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from types import ModuleType
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Set

from devkit.errors import DevkitError
from devkit.stub import failures, pb_utils
from devkit.stub.modelconfig import ModelConfig


class StageError(DevkitError):
    """User code failed while a model was loading; `message` is the real server's text of it."""

    def __init__(self, problem: BaseException, stage: str, folder: str) -> None:
        super().__init__(failures.text(problem), line=failures.line(problem, folder))
        self.stage = stage
        self.traceback = failures.formatted(problem)

    @classmethod
    def saying(cls, text: str, stage: str, line: Optional[str]) -> StageError:
        """A failure that is no exception of the model's."""
        made = cls(TypeError(text), stage, "")
        made.message, made.line, made.traceback = text, line, ""
        return made


def _line_of(function: Any) -> Optional[str]:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else None


class Refused(Exception):
    """What a model does with a batch may not be done; the text is the real server's."""


class UserModel:
    """One `TritonPythonModel` and where it came from."""

    def __init__(
        self,
        path: str,
        version_dir: str,
        model_dir: str,
        module_name: str,
        paths: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.version_dir = version_dir
        self.model_dir = model_dir
        self.module_name = module_name
        self.paths = paths or (version_dir, model_dir)
        self.instance: Any = None
        self._class: Any = None
        self._modules_before: Set[str] = set()

    def load(self) -> None:
        """Import the model's file. Raises StageError."""
        self._modules_before = set(sys.modules)
        for folder in dict.fromkeys((*self.paths, os.path.dirname(self.path))):
            if folder not in sys.path:
                sys.path.append(folder)
        try:
            # The statement and not importlib.import_module: the frames that show must be those
            # of the import system alone.
            with pb_utils.without_native():
                __import__(self.module_name)
        except BaseException as problem:
            raise StageError(problem, "import", self.model_dir) from None
        module = sys.modules[self.module_name]
        try:
            self._class = module.TritonPythonModel
        except AttributeError as problem:
            raise StageError(problem, "import", self.model_dir) from None

    def auto_complete(self, config: Dict[str, Any]) -> Dict[str, Any]:
        """What `auto_complete_config` makes of `config`. Raises StageError."""
        complete = getattr(self._class, "auto_complete_config", None)
        if complete is None:
            return config
        try:
            answer = complete(ModelConfig(json.dumps(config)))
        except BaseException as problem:
            raise StageError(problem, "auto_complete_config", self.model_dir) from None
        if not isinstance(answer, ModelConfig):
            raise StageError.saying(
                f"auto_complete_config function in model '{config.get('name', '')}' must return a "
                "valid pb.ModelConfig object.",
                "auto_complete_config",
                _line_of(complete),
            )
        return answer.as_dict()

    def initialize(self, args: Dict[str, str]) -> None:
        """Make the instance and initialize it. Raises StageError."""
        try:
            self.instance = self._class()
            initialize = getattr(self.instance, "initialize", None)
            if initialize is not None:
                initialize(args)
        except BaseException as problem:
            raise StageError(problem, "initialize", self.model_dir) from None

    @property
    def executes(self) -> bool:
        """Whether the model has `execute`."""
        return hasattr(self.instance, "execute")

    @property
    def asynchronous(self) -> bool:
        """Whether `execute` is a coroutine function."""
        return inspect.iscoroutinefunction(getattr(self.instance, "execute", None))

    def execute(self, requests: List[Any]) -> Any:
        """The model's answer to a batch; raises whatever it raises, Refused where it has none."""
        execute = getattr(self.instance, "execute", None)
        if execute is None:
            raise Refused(f"Python model {self.path} does not implement `execute` method.")
        return execute(requests)

    def execute_line(self) -> str:
        """`path:line` where the model's `execute` begins."""
        return _line_of(getattr(self._class, "execute", None)) or f"{self.path}:1"

    def is_ready(self) -> Any:
        """The model's own opinion, True where it has none."""
        ready = getattr(self.instance, "is_ready", None)
        return True if ready is None else ready()

    def finalize(self) -> Optional[BaseException]:
        """Run `finalize` if there is one; returns what it raised."""
        finalize = getattr(self.instance, "finalize", None)
        if finalize is not None:
            try:
                finalize()
            except BaseException as problem:
                return problem
        return None

    def files(self) -> List[str]:
        """The model's own files that are loaded, so that the runtime can watch them."""
        found = {self.path}
        for module in list(sys.modules.values()):
            name = _file_of(module)
            if name and self._owns(name):
                found.add(name)
        return sorted(found)

    def _owns(self, file: str) -> bool:
        """Whether a file is the model's; packages of an environment in its folder are not."""
        folder = self.model_dir.rstrip(os.sep) + os.sep
        return file.startswith(folder) and "site-packages" not in file[len(folder) :]

    def modules(self) -> List[str]:
        """Third-party top-level modules that loading has imported: what a zygote should know."""
        standard: FrozenSet[str] = getattr(sys, "stdlib_module_names", frozenset())
        found = set()
        for name in set(sys.modules) - self._modules_before:
            top = name.partition(".")[0]
            module = sys.modules.get(top)
            file = _file_of(module) if module is not None else None
            if top in standard or not file or self._owns(file) or failures.is_ours(file):
                continue
            if "site-packages" in file or "dist-packages" in file:
                found.add(top)
        return sorted(found)


def _file_of(module: Optional[ModuleType]) -> Optional[str]:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def load(described: Dict[str, Any]) -> UserModel:
    """The model that an INITIALIZE describes, imported."""
    model = UserModel(
        described["model_path"],
        described["version_dir"],
        described["model_dir"],
        described["module_name"],
        described.get("paths") or (),
    )
    model.load()
    return model
