from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.core import layers, schema
from control.core.errors import UsageError
from control.core.layers import Layer, Resolved

STACK = "config/stack.yaml"
# Settings with two right values each, other than the default.
VALUES: dict[str, tuple[object, object]] = {
    "project": ("one", "two"),
    "engine.kind": ("stub", "cpu"),
    "engine.replicas": (3, 5),
    "engine.drain_s": (1.5, 20),
    "gateway.port": (9000, 9001),
    "gateway.bind": ("0.0.0.0", "::1"),
    "gateway.limits.requests_per_second": (5, 0),
    "gateway.tls.mode": ("self_signed", "off"),
    "monitoring.enabled": (True, False),
}


def resolve(*given_layers: Layer) -> Resolved:
    return layers.resolve(given_layers)


def complaints(*given_layers: Layer) -> list[str]:
    with pytest.raises(UsageError) as caught:
        layers.resolve(given_layers)
    return caught.value.what.split("\n")


def yaml(text: str) -> Layer:
    return layers.yaml_layer(text, STACK)


def value_of(resolved: Resolved, path: str) -> object:
    value: object = resolved.settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def nested(path: str, value: object) -> dict[str, object]:
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def test_without_layers_every_setting_has_its_default_and_says_so() -> None:
    resolved = resolve()
    assert set(resolved.origins) == set(schema.leaves())
    assert set(resolved.origins.values()) == {"default"}
    for path, leaf in schema.leaves().items():
        assert value_of(resolved, path) == leaf.default


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(VALUES)), st.sampled_from([0, 1])).map(lambda t: (t[0], VALUES[t[0]][t[1]])),
        max_size=8,
    )
)
def test_the_last_layer_that_names_a_setting_wins_and_is_its_origin(chosen: list[tuple[str, object]]) -> None:
    resolved = resolve(*[Layer(f"layer {n}", nested(path, value)) for n, (path, value) in enumerate(chosen)])
    last = {path: (n, value) for n, (path, value) in enumerate(chosen)}
    for path, leaf in schema.leaves().items():
        if path in last:
            number, value = last[path]
            assert (value_of(resolved, path), resolved.origins[path]) == (value, f"layer {number}")
        else:
            assert (value_of(resolved, path), resolved.origins[path]) == (leaf.default, "default")


def test_defaults_are_weaker_than_the_file_than_the_environment_than_set() -> None:
    file = yaml("gateway: {port: 1, drain_s: 1, concurrency: 1}\nproject: file\n")
    environment = layers.environment_layer({"FLASHBOX__GATEWAY__PORT": "2", "FLASHBOX__GATEWAY__DRAIN_S": "2"})
    command = layers.assignment_layer(["gateway.port=3"])
    resolved = resolve(file, environment, command)
    gateway = resolved.settings.gateway
    assert (gateway.port, gateway.drain_s, gateway.concurrency, gateway.memory_mib) == (3, 2, 1, 2048)
    assert resolved.origins["gateway.port"] == "--set gateway.port=3"
    assert resolved.origins["gateway.drain_s"] == "FLASHBOX__GATEWAY__DRAIN_S"
    assert resolved.origins["gateway.concurrency"] == STACK
    assert resolved.origins["gateway.memory_mib"] == "default"


@pytest.mark.parametrize(
    "text", ["", "\n# nothing\n", "---\n", "gateway:\n", "gateway: {}\nengine:\n  # kind: stub\n", "\ufeff"]
)
def test_an_empty_file_or_section_overrides_nothing(text: str) -> None:
    assert set(resolve(yaml(text)).origins.values()) == {"default"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("gateway: {prot: 1}", f"{STACK}: gateway.prot: unknown setting (did you mean port?)"),
        ("max_num_seqs: 4", f"{STACK}: max_num_seqs: unknown setting (did you mean engine.max_num_seqs?)"),
        ("gateway: {tls: {mod: off}}", f"{STACK}: gateway.tls.mod: unknown setting (did you mean mode?)"),
        ("gateway: {limit: {}}", f"{STACK}: gateway.limit: unknown setting (did you mean limits?)"),
        ("limits: {}", f"{STACK}: limits: unknown setting (did you mean gateway.limits?)"),
        ("gateway: {requests_per_second: 1}",
         f"{STACK}: gateway.requests_per_second: unknown setting "
         "(did you mean gateway.limits.requests_per_second?)"),
        ("gateway: {cors: [a]}", f"{STACK}: gateway.cors: expected a mapping of settings (origins), found a list"),
        ("gateway: {limits: {requests_per_second: -1}}",
         f"{STACK}: gateway.limits.requests_per_second: expected an integer from 0 to 30000 or null, found -1"),
        ("gateway: {cors: {origins: [x]}}", f"{STACK}: gateway.cors.origins[0]: expected scheme and host "
         'without a path, such as https://chat.example.com, or *, found "x"'),
        ("gateway: {trusted_proxies: [10.0.0.0/8, 10.0.0.1/8]}", f"{STACK}: gateway.trusted_proxies[1]: "
         'expected a network such as 10.0.0.0/8 or one address, found "10.0.0.1/8"'),
        ("gateway: {trusted_proxies: [0.0.0.0/0]}", f"{STACK}: gateway.trusted_proxies[0]: "
         'expected the networks of proxies, not every address, found "0.0.0.0/0"'),
        ("gateway: {tls: {names: [a b]}}", f"{STACK}: gateway.tls.names[0]: "
         'expected a host name such as llm.example.com, or an address, found "a b"'),
        ("gateway: {idle_timeout_s: 0.0001}",
         f"{STACK}: gateway.idle_timeout_s: expected a number from 0.001 to 86400 or null, found 0.0001"),
        ("stub: {decode_tokens_per_s: 0.0001}",
         f"{STACK}: stub.decode_tokens_per_s: expected a number at least 0.001, found 0.0001"),
        ("gatway: {port: 1}", f"{STACK}: gatway: unknown setting (did you mean gateway?)"),
        ("xyzzy: 1", f"{STACK}: xyzzy: unknown setting"),
        ("8000: 1", f"{STACK}: 8000: unknown setting"),
        ("on: 1", f"{STACK}: true: unknown setting"),
        ('gateway: {port: "x"}', f'{STACK}: gateway.port: expected an integer, found "x"'),
        ('gateway: {port: "9000"}', f'{STACK}: gateway.port: expected an integer, found "9000"'),
        ("gateway: {port: yes}", f"{STACK}: gateway.port: expected an integer, found true"),
        ("gateway: {port: 70000}", f"{STACK}: gateway.port: expected an integer from 0 to 65535, found 70000"),
        ("gateway: {port: [1]}", f"{STACK}: gateway.port: expected an integer, found a list"),
        ("gateway: {port: {}}", f"{STACK}: gateway.port: expected an integer, found a mapping"),
        ("monitoring: {enabled: 1}", f"{STACK}: monitoring.enabled: expected true or false, found 1"),
        ("engine: {kind: tpu}", f'{STACK}: engine.kind: expected one of gpu, cpu, stub, found "tpu"'),
        ("engine: {drain_s: .nan}", f"{STACK}: engine.drain_s: expected a number from 0.001 to 86400, found nan"),
        ("stub: {decode_tokens_per_s: .inf}",
         f"{STACK}: stub.decode_tokens_per_s: expected a finite number, found inf"),
        ("project: 12", f'{STACK}: project: expected text, found 12; quote it: "12"'),
        ("monitoring: [enabled]", f"{STACK}: monitoring: expected a mapping of settings (enabled), found a list"),
        ("monitoring: on", f"{STACK}: monitoring: expected a mapping of settings (enabled), found true"),
        ("- gateway", f"{STACK}: expected a mapping of settings, such as gateway:, found a list"),
        ("gateway", f'{STACK}: expected a mapping of settings, such as gateway:, found "gateway"'),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_told_with_place_path_expected_and_found(text: str, line: str) -> None:
    assert complaints(yaml(text)) == [line]


def test_null_is_a_value_only_where_the_type_allows_it() -> None:
    assert (
        resolve(
            yaml("engine: {replicas: 4}"), layers.assignment_layer(["engine.replicas=null"])
        ).settings.engine.replicas
        is None
    )
    (line,) = complaints(yaml("gateway:\n  port:\n"))
    assert (
        line == f"{STACK}: gateway.port: expected an integer, found null; leave the line out to take the default 8000"
    )


def test_a_project_name_in_capitals_is_refused_with_the_name_that_would_do() -> None:
    (line,) = complaints(yaml("project: DSV4 Flash"))
    assert line.endswith('found "DSV4 Flash" (did you mean dsv4-flash?)')


def test_a_value_that_a_rule_refuses_is_told_with_an_example() -> None:
    bind, subnet = complaints(yaml("gateway: {bind: localhost}\nnetwork: {engine_subnet: 10.0.0.0/8}"))
    assert bind.startswith(f'{STACK}: gateway.bind: expected a value such as "127.0.0.1", found "localhost"')
    assert subnet.startswith(f"{STACK}: network.engine_subnet: expected a private IPv4 network between /16 and /24")
    assert subnet.endswith('found "10.0.0.0/8"')


def test_complaints_of_all_layers_are_told_at_once_each_once() -> None:
    found = complaints(
        yaml("gateway: {prot: 1, port: x}\nengine: []\n"),
        layers.environment_layer({"FLASHBOX__ENGINE__KIND": "tpu", "FLASHBOX__ENGIN__KIND": "stub"}),
        layers.assignment_layer(["gateway.port=x", "gateway.port=x", "nonsense"]),
    )
    assert len(found) == len(set(found)) == 7
    assert [line.partition(": ")[0] for line in found].count(STACK) == 3
    assert '--set gateway.port=x: gateway.port: expected an integer, found "x"' in found
    assert "FLASHBOX__ENGIN__KIND: engin: unknown setting (did you mean engine?)" in found
    assert "--set nonsense: expected NAME=VALUE, such as gateway.port=9000, found no =" in found


def test_a_mistake_that_a_stronger_layer_hides_is_told_all_the_same() -> None:
    for wrong in ("x", '"9000"', "yes"):
        assert complaints(yaml(f"gateway: {{port: {wrong}}}"), layers.assignment_layer(["gateway.port=9000"]))


@pytest.mark.parametrize(
    "name", ["FLASHBOX_API_KEY", "FLASHBOX", "MY_FLASHBOX__GATEWAY__PORT", "flashbox__gateway__port", "PATH"]
)
def test_variables_without_the_prefix_are_somebody_elses(name: str) -> None:
    assert layers.environment_layer({name: "nonsense"}).values == {}


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        (
            {"FLASHBOX__GATEWAY__PROT": "1"},
            "FLASHBOX__GATEWAY__PROT: gateway.prot: unknown setting (did you mean port?)",
        ),
        ({"FLASHBOX__GATEWAY__PORT": ""}, "FLASHBOX__GATEWAY__PORT: gateway.port: expected an integer, found null"),
        ({"FLASHBOX__GATEWAY__TLS": "1"}, "FLASHBOX__GATEWAY__TLS: gateway.tls: expected one setting, found"),
        (
            {"FLASHBOX__GATEWAY__LIMITS__REQUEST_PER_SECOND": "1"},
            "FLASHBOX__GATEWAY__LIMITS__REQUEST_PER_SECOND: gateway.limits.request_per_second: unknown setting "
            "(did you mean requests_per_second?)",
        ),
        ({"FLASHBOX__GATEWAY": "1"}, "FLASHBOX__GATEWAY: gateway: expected one setting, found the section"),
        ({"FLASHBOX__": "1"}, "FLASHBOX__: expected the path of a setting"),
        ({"FLASHBOX____PORT": "1"}, "FLASHBOX____PORT: expected the path of a setting"),
        ({"FLASHBOX__GATEWAY__BIND": "["}, "FLASHBOX__GATEWAY__BIND: line 1: while parsing a flow node"),
        ({"FLASHBOX__A": "1", "FLASHBOX__a": "1"}, "FLASHBOX__a: a: already set by FLASHBOX__A; unset one of the two"),
    ],
)
def test_a_variable_that_is_a_typo_is_an_error(environ: dict[str, str], words: str) -> None:
    assert any(line.startswith(words) for line in complaints(layers.environment_layer(environ)))


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("a..b=1", "expected the path of a setting"),
        ("=1", "expected the path of a setting"),
        (
            "gateway={port: 1}",
            "gateway: expected one setting, found the section; name one inside it, such as gateway.bind",
        ),
        ("gateway.port={a: 1}", "gateway.port: expected one value, found a mapping"),
        ("gateway.port=0777", "line 1: YAML reads 0777 as 511; write 511, or '0777' for text; quote the value"),
        ("gateway.port", "expected NAME=VALUE"),
    ],
)
def test_an_assignment_that_cannot_be_meant_is_an_error(assignment: str, words: str) -> None:
    (line,) = complaints(layers.assignment_layer([assignment]))
    assert line.startswith(f"--set {assignment}: {words}")


def test_a_setting_inside_a_value_is_an_error_and_no_traceback() -> None:
    assert any("inside a value" in line for line in complaints(layers.assignment_layer(["project=x", "project.y=1"])))


def test_a_setting_three_levels_down_is_reached_from_every_place() -> None:
    path, variable = "gateway.limits.requests_per_second", "FLASHBOX__GATEWAY__LIMITS__REQUESTS_PER_SECOND"
    places = [
        yaml("gateway: {limits: {requests_per_second: 7}}"),
        layers.environment_layer({variable: "8"}),
        layers.assignment_layer([f"{path}=9"]),
    ]
    for count, origin in ((1, STACK), (2, variable), (3, f"--set {path}=9")):
        resolved = resolve(*places[:count])
        assert (value_of(resolved, path), resolved.origins[path]) == (6 + count, origin)
    assert resolved.settings.gateway.limits.requests_per_minute is None


def test_settings_that_contradict_each_other_are_told_with_the_place_that_made_it_so() -> None:
    named = layers.assignment_layer(["gateway.tls.mode=files", "gateway.tls.key=/etc/tls/key.pem"])
    assert complaints(yaml("gateway: {memory_mib: 160}"), named) == [
        "--set gateway.tls.mode=files: gateway.tls.certificate: expected the path of a PEM file, "
        'since gateway.tls.mode is files, found ""',
        f"{STACK}: gateway.memory_mib: expected at least 161 with gateway.concurrency 2, found 160",
    ]
    complete = layers.assignment_layer(["gateway.tls.certificate=/etc/tls/chain.pem"])
    assert resolve(yaml("gateway: {memory_mib: 161}"), named, complete).settings.gateway.tls.mode == "files"


@pytest.mark.parametrize("name", ["localhost", "llm.example.com", "*.example.com", "10.0.0.1", "::1", "a" * 63])
def test_a_certificate_may_name_hosts_and_addresses(name: str) -> None:
    assert resolve(Layer("x", {"gateway": {"tls": {"names": [name]}}})).settings.gateway.tls.names == [name]


@pytest.mark.parametrize("name", ["", "*", "-a", "a.", "a..b", "a.*.b", "a" * 64, "a/b", "a\n", "x." * 130 + "x"])
def test_a_certificate_names_nothing_else(name: str) -> None:
    assert complaints(Layer("x", {"gateway": {"tls": {"names": [name]}}}))


@pytest.mark.parametrize("word", ["off", "'off'", "OFF", "false"])
def test_off_is_a_word_wherever_it_is_written_although_yaml_reads_it_as_false(word: str) -> None:
    variables = {"FLASHBOX__GATEWAY__POLICY": word, "FLASHBOX__GATEWAY__TLS__MODE": word}
    for layer in (
        yaml(f"gateway: {{policy: {word}, tls: {{mode: {word}}}}}"),
        layers.environment_layer(variables),
        layers.assignment_layer([f"gateway.policy={word}"]),
    ):
        assert resolve(layer).settings.gateway.policy == "off"


def test_of_two_assignments_the_last_counts() -> None:
    resolved = resolve(layers.assignment_layer(["gateway.port=1", "gateway.port=2"]))
    assert (resolved.settings.gateway.port, resolved.origins["gateway.port"]) == (2, "--set gateway.port=2")


def test_a_value_may_hold_an_equals_sign_and_colons() -> None:
    resolved = resolve(layers.assignment_layer(["images.pip_index_url=https://host:1/simple?a=b"]))
    assert resolved.settings.images.pip_index_url == "https://host:1/simple?a=b"


@given(st.text(max_size=40))
def test_whatever_stands_in_the_file_gets_settings_or_a_usage_error(text: str) -> None:
    try:
        resolve(yaml(text))
    except UsageError as error:
        assert all(line.startswith(f"{STACK}: ") for line in error.what.split("\n"))


@given(st.text(max_size=20).filter(lambda name: name not in schema.groups()[""].names))
def test_no_unknown_name_is_taken_in_silence(name: str) -> None:
    assert any("unknown setting" in line for line in complaints(Layer("here", {name: 1})))


ALIKE = {"images.source", "images.sources"}  # as near to each other as to a slip of either
LONG_NAMES = [path for path, leaf in schema.leaves().items() if len(leaf.name) > 3 and path not in ALIKE]  # uid, gid


@given(st.sampled_from(LONG_NAMES), st.data())
def test_a_name_with_two_letters_swapped_is_told_with_the_right_name(path: str, data: st.DataObject) -> None:
    section, _, name = path.rpartition(".")
    swapped = [name[:n] + name[n + 1] + name[n] + name[n + 2 :] for n in range(len(name) - 1) if name[n] != name[n + 1]]
    siblings = schema.groups()[section].names
    typo = data.draw(st.sampled_from([word for word in swapped if word not in siblings]))
    (line,) = complaints(Layer("here", nested(f"{section}.{typo}".lstrip("."), 1)))
    assert line == f"here: {f'{section}.{typo}'.lstrip('.')}: unknown setting (did you mean {name}?)"
