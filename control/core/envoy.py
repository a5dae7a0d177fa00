"""Fold Envoy's files into one static bootstrap, so that `envoy --mode validate` judges everything.

On its own that mode looks at bootstrap.yaml and skips whatever lies behind xDS: listeners, routes,
clusters, endpoints, filters and secrets. Here each reference to a file is replaced by what the file
holds, after the checks that only the subscription would make: the file is there, it holds the
resource that is asked for, under the type that is expected. Nothing of the host is needed for the
verdict: secret files and sockets are replaced by harmless stand-ins.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from control.core import strict_yaml, wiring
from control.core.envoy_files import FILTERS
from control.core.errors import FlashboxError

TYPE = "type.googleapis.com/"
RESOURCE_TYPES: Mapping[str, str] = {
    "cds.yaml": TYPE + "envoy.config.cluster.v3.Cluster",
    "eds.yaml": TYPE + "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "sds.yaml": TYPE + "envoy.extensions.transport_sockets.tls.v3.Secret",
    "sds_tls.yaml": TYPE + "envoy.extensions.transport_sockets.tls.v3.Secret",
    "lds.yaml": TYPE + "envoy.config.listener.v3.Listener",
    **{f"ecds_{name}.yaml": TYPE + "envoy.config.core.v3.TypedExtensionConfig" for name in FILTERS},
    "rds.yaml": TYPE + "envoy.config.route.v3.RouteConfiguration",
}
BOOTSTRAP = "bootstrap.yaml"
FILES = (BOOTSTRAP, *RESOURCE_TYPES)  # in the order in which one can be judged with those before it

Tree = dict[str, Any]


def fold(files: Mapping[str, str]) -> str:
    """All of Envoy's files (path -> text; folders are ignored) as one static bootstrap, in JSON."""
    named = by_name(files)
    missing = [name for name in FILES if name not in named]
    if missing:
        raise FlashboxError(f"Envoy's files are not complete: {', '.join(missing)} missing")
    return _Fold(named, FILES).text()


def stages(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The same fold with one more file each time: the first that Envoy refuses names the file at fault."""
    named = by_name(files)
    for count, name in enumerate(FILES, start=1):
        yield name, _Fold(named, FILES[:count]).text()


def by_name(files: Mapping[str, str]) -> dict[str, str]:
    """Envoy's files by their last path element; anything else of a rendering is left out."""
    return {path.rpartition("/")[2]: text for path, text in files.items() if path.rpartition("/")[2] in FILES}


@dataclass
class _Fold:
    """One folding: `known` are the files to take in; what refers to others gets a neutral stand-in."""

    files: Mapping[str, str]
    known: Collection[str]
    secrets: list[Tree] = field(default_factory=list)

    def text(self) -> str:
        """The static bootstrap."""
        bootstrap = _load(BOOTSTRAP, self.files[BOOTSTRAP])
        dynamic = bootstrap.pop("dynamic_resources", None) or {}
        for kind in ("lds", "cds"):
            self._source(f"{BOOTSTRAP}: dynamic_resources.{kind}_config", dynamic.get(f"{kind}_config"), f"{kind}.yaml")
        listeners = self._inline("lds.yaml", list(self._resources("lds.yaml").values()))
        clusters = self._inline("cds.yaml", list(self._resources("cds.yaml").values()))
        known = [resource for name in ("sds.yaml", "sds_tls.yaml") for resource in self._resources(name).values()]
        self.secrets = known + self.secrets
        bootstrap["static_resources"] = {"listeners": listeners, "clusters": clusters, "secrets": self.secrets}
        return json.dumps(_harmless(bootstrap), indent=1)

    def _resources(self, name: str) -> dict[str, Tree]:
        """The resources of one file by name, without their type; none while the file is not known."""
        if name not in self.known:
            return {}
        listed = _load(name, self.files[name]).get("resources")
        if not isinstance(listed, list):
            raise FlashboxError(f"{name}: expected a list `resources`")
        found: dict[str, Tree] = {}
        for number, resource in enumerate(listed):
            if not isinstance(resource, dict) or resource.get("@type") != RESOURCE_TYPES[name]:
                raise FlashboxError(f"{name}: resources[{number}]: expected @type {RESOURCE_TYPES[name]}")
            label = str(resource.get("cluster_name" if name == "eds.yaml" else "name"))
            if label in found:
                raise FlashboxError(f"{name}: resources[{number}]: second resource named {label}")
            found[label] = {key: value for key, value in resource.items() if key != "@type"}
        return found

    def _source(self, where: str, config_source: Any, expected: str) -> None:
        """A reference must lead to the file that Envoy watches for it."""
        path = _dig(config_source, "path_config_source", "path")
        if not isinstance(path, str) or path.rpartition("/")[2] != expected:
            raise FlashboxError(f"{where}: expected path_config_source.path to be {expected}, found {path!r}")
        if _dig(config_source, "path_config_source", "watched_directory", "path") != path.rpartition("/")[0]:
            raise FlashboxError(f"{where}: watched_directory must be the folder of {path}, or renames go unseen")

    def _pick(self, where: str, name: str, wanted: Any) -> Tree | None:
        """The resource that a reference asks for; None while its file is not known."""
        if name not in self.known:
            return None
        found = self._resources(name)
        if wanted not in found:
            raise FlashboxError(f"{where}: asks for {wanted!r} of {name}, which has {', '.join(found) or 'nothing'}")
        return found[wanted]

    def _inline(self, where: str, node: Any) -> Any:
        """`node` with each reference to another file replaced by what that file holds."""
        if isinstance(node, list):
            return [self._inline(where, item) for item in node]
        if not isinstance(node, dict):
            return node
        tree = {key: self._inline(where, value) for key, value in node.items()}
        for reference, replace in _REFERENCES.items():
            if reference in tree:
                replace(self, where, tree)
        return tree

    def _routes(self, where: str, tree: Tree) -> None:
        rds = tree.pop("rds")
        self._source(f"{where}: rds", _dig(rds, "config_source"), "rds.yaml")
        name = _dig(rds, "route_config_name")
        tree["route_config"] = self._pick(where, "rds.yaml", name) or {"name": name}

    def _filter(self, where: str, tree: Tree) -> None:
        discovery, name = tree.pop("config_discovery"), str(tree.get("name"))
        expected = f"ecds_{name.removeprefix('flashbox.')}.yaml"
        self._source(f"{where}: {name}: config_discovery", _dig(discovery, "config_source"), expected)
        found = self._pick(where, expected, name)
        if found is None:
            tree["disabled"] = True
            tree["typed_config"] = {"@type": TYPE + "envoy.extensions.filters.http.lua.v3.Lua"}
            return
        kind, allowed = _dig(found, "typed_config", "@type"), _dig(discovery, "type_urls")
        if kind not in (allowed or []):
            raise FlashboxError(f"{where}: {name}: its type_urls do not allow {kind}, which is in {expected}")
        tree["typed_config"] = found["typed_config"]

    def _endpoints(self, where: str, tree: Tree) -> None:
        eds = tree.pop("eds_cluster_config")
        self._source(f"{where}: eds_config", _dig(eds, "eds_config"), "eds.yaml")
        name = _dig(eds, "service_name") or tree.get("name")
        if tree.get("type") != "EDS":
            raise FlashboxError(f"{where}: {name}: eds_cluster_config needs type EDS, found {tree.get('type')}")
        tree["load_assignment"] = self._pick(where, "eds.yaml", name) or {"cluster_name": name}
        tree["type"] = "STATIC"

    def _secret(self, where: str, tree: Tree) -> None:
        expected = "sds_tls.yaml" if tree.get("name") == wiring.TLS_SECRET else "sds.yaml"
        self._source(f"{where}: sds_config", tree.pop("sds_config"), expected)
        found = self._pick(where, expected, tree.get("name"))
        if expected == "sds_tls.yaml":  # a certificate in place would have to be a good one
            tree["sds_config"] = {"resource_api_version": "V3", "path_config_source": {"path": "/dev/null"}}
        elif found is None and all(secret["name"] != tree.get("name") for secret in self.secrets):
            self.secrets.append({"name": tree.get("name"), "generic_secret": {"secret": {"inline_string": "x"}}})


_REFERENCES = {
    "rds": _Fold._routes,
    "config_discovery": _Fold._filter,
    "eds_cluster_config": _Fold._endpoints,
    "sds_config": _Fold._secret,
}


def _harmless(node: Any) -> Any:
    """`node` without anything that exists only inside the gateway's container: secret files, sockets."""
    if isinstance(node, list):
        return [_harmless(item) for item in node]
    if not isinstance(node, dict):
        return node
    if set(node) == {"filename"}:
        return {"inline_string": "stands-for-a-file"}
    return {
        key: {**value, "path": "stands-for-a-socket"} if key == "pipe" and isinstance(value, dict) else _harmless(value)
        for key, value in node.items()
        if key != "watched_directory"
    }


def _dig(node: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(node, dict):
            return None
        node = node.get(key)
    return node


def _load(name: str, text: str) -> Tree:
    """One file as a tree; complaints carry its name and the line."""
    document = strict_yaml.read(text, name)
    if document.complaints:
        raise FlashboxError("\n".join(document.complaints))
    if not isinstance(document.value, dict):
        raise FlashboxError(f"{name}: expected a mapping, found {type(document.value).__name__}")
    return document.value
