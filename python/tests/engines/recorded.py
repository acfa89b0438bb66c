# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Stand-ins for an engine, made of what `tools/record_engine_signatures` wrote down of it.

They have the recorded names and take the recorded arguments, and nothing else: a plug-in that reads
an attribute, or takes a call, that the engine does not have fails on them.
"""

from __future__ import annotations

import json
import pathlib
import sys
import types
from typing import Any

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


class Record:
    """What was recorded of an engine."""

    def __init__(self, engine: str) -> None:
        record = json.loads((DATA / f"{engine}.json").read_text())
        self.version = record["version"]
        self.symbols: dict[str, dict] = record["symbols"]
        self.calls: dict[str, list[dict]] = record["calls"]
        self.texts: list[str] = record["texts"]

    def symbol(self, name: str) -> dict:
        """The record of a class or function by its own name."""
        (found,) = [
            entry for path, entry in self.symbols.items() if path.rpartition(".")[2] == name
        ]
        return found

    def parameters(self, name: str, method: str | None = None) -> list[str]:
        """Parameters without the marks of the record."""
        entry = self.symbol(name)
        listed = entry["parameters"] if method is None else entry["methods"][method]
        return [p.rstrip("=") for p in listed if not p.startswith("*")]

    def make(self, name: str, cls: type | None = None, **values: Any) -> Any:
        """An object of `cls`, or of a class of this name, with `values` for recorded names."""
        known = self._names(name)
        unknown = sorted(set(values) - known)
        assert not unknown, f"{name} of the recorded version has no {', '.join(unknown)}"
        made = object.__new__(cls or type(name, (), {}))
        vars(made).update(values)
        return made

    def _names(self, name: str) -> set[str]:
        entry = self.symbol(name)
        known = set(entry["names"]) | set(entry["attributes"]) | set(entry["methods"])
        for base in entry["bases"]:
            if any(path.endswith(f".{base}") for path in self.symbols):
                known |= self._names(base)
        return known

    def stub(self, name: str, base: type = object, **members: Any) -> type:
        """A class of this name without any behaviour but `members`, which must be recorded."""
        unknown = sorted(set(members) - self._names(name))
        assert not unknown, f"{name} of the recorded version has no {', '.join(unknown)}"
        return type(name, (base,), members)

    def call(self, what: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls `function` with the arguments in the places in which the engine gives them.

        `args` are the positional ones, as many as the engine gives; keywords that the engine gives
        and the caller does not are None.
        """
        (made,) = self.calls[what]
        assert len(args) == made["positional"], f"{what} gives {made['positional']} arguments"
        unknown = sorted(set(kwargs) - set(made["keywords"]))
        assert not unknown, f"{what} of the recorded version gives no {', '.join(unknown)}"
        return function(*args, **{**dict.fromkeys(made["keywords"]), **kwargs})


def install(monkeypatch: Any, modules: dict[str, dict[str, Any]], plugin: str) -> None:
    """Puts stand-in modules, and the packages above them, in place; forgets the plug-in's own."""
    for name in [n for n in sys.modules if n == plugin or n.startswith(f"{plugin}.")]:
        monkeypatch.delitem(sys.modules, name)
    packages = {p for name in modules for p in _parents(name)}
    for name in sorted(packages | set(modules)):
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(modules.get(name, {}))
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]
