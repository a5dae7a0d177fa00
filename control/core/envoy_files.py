"""Envoy's files that people read, from the templates in config/envoy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jinja2

from control.core import key_table, limits, wiring
from control.core.errors import FlashboxError
from control.core.header import with_header
from control.core.model import ApiKey, Plan
from control.core.policies import Governance
from control.core.settings import Settings

TEMPLATES = "config/envoy"
AUTH_SCRIPT, USAGE_SCRIPT = "auth.lua", "usage.lua"
BOOTSTRAP_PATH = "run/envoy/bootstrap.yaml"
# Filters that are files of their own: ecds_NAME.yaml is the filter flashbox.NAME of lds.yaml.
FILTERS = ("auth", "limit_ip_second", "limit_ip_minute", "limit_key_second", "limit_key_minute")
_DYNAMIC = ("lds", "rds", "cds", "sds", "sds_tls", *(f"ecds_{name}" for name in FILTERS))
# Where each template is rendered to; those in parts/ are included by these.
_TARGETS: Mapping[str, str] = {
    "bootstrap.yaml.j2": BOOTSTRAP_PATH,
    **{f"{name}.yaml.j2": f"run/envoy/dynamic/{name}.yaml" for name in _DYNAMIC},
}
_MEND = "Take the file from the release again."


def render(
    settings: Settings, plan: Plan, rules: Governance, keys: Sequence[ApiKey], sources: Mapping[str, str]
) -> dict[str, str]:
    """Envoy's files, path -> text, but for the endpoints, which are dumped from data.

    Templates see `settings`, `plan`, `rules` (what is in force), `keys`, `key_table`, `limits`, `wiring`, `auth_lua`,
    `usage_lua`.
    """
    sources = {path.removeprefix(f"{TEMPLATES}/"): text for path, text in sources.items() if path.startswith(TEMPLATES)}
    missing = [name for name in (*_TARGETS, AUTH_SCRIPT, USAGE_SCRIPT) if name not in sources]
    if missing:
        raise FlashboxError("\n".join(f"{TEMPLATES}/{name}: missing" for name in missing), fix=_MEND)
    strange = [name for name in sources if name.endswith(".j2") and "/" not in name and name not in _TARGETS]
    if strange:
        lines = [f"{TEMPLATES}/{name}: no file of Envoy's is rendered from this" for name in strange]
        raise FlashboxError("\n".join(lines), fix=f"Remove it. Known: {', '.join(_TARGETS)}.")
    context = {
        **{"settings": settings, "plan": plan, "rules": rules, "keys": keys, "wiring": wiring},
        **{"key_table": key_table.table(keys, rules), "limits": limits, "auth_lua": sources[AUTH_SCRIPT]},
        "usage_lua": sources[USAGE_SCRIPT],
    }
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(sources),  # parts/, for `include` and `import`
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # YAML, not HTML; settings are bounded by patterns
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return {target: with_header(_fill(environment, name, context)) for name, target in _TARGETS.items()}


def _fill(environment: jinja2.Environment, name: str, context: Mapping[str, object]) -> str:
    try:
        return environment.get_template(name).render(context)
    except jinja2.TemplateSyntaxError as error:
        where = f"{TEMPLATES}/{error.name or name}: line {error.lineno}"
        raise FlashboxError(f"{where}: {error.message}", "The template cannot be read.", _MEND) from None
    except jinja2.TemplateError as error:
        raise FlashboxError(f"{_place(error, name)}: {error.message}", "It names what is not there.", _MEND) from None


def _place(error: BaseException, name: str) -> str:
    """File and line: Jinja gives its frames the template's numbering, and its name as the global `name`."""
    line: int | str = "?"
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<template>":
            name, line = str(frame.tb_frame.f_globals.get("name") or name), frame.tb_lineno
        frame = frame.tb_next
    return f"{TEMPLATES}/{name}: line {line}"
