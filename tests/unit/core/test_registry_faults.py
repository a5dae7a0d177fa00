from __future__ import annotations

import pytest

from control.core.registry_faults import explain, kind_of, registry_of

# As the Docker daemon words it; tests/integration/test_registry.py has the daemon say most of them itself.
SAID = {
    "certificate": [
        'Get "https://172.17.0.1:5000/v2/": tls: failed to verify certificate: x509: certificate signed by unknown '
        "authority",
        "x509: certificate has expired or is not yet valid: current time 2030-01-01T00:00:00Z",
        "x509: cannot validate certificate for 10.0.0.1 because it doesn't contain any IP SANs",
    ],
    "plain-http": ['Get "https://r.example:5000/v2/": http: server gave HTTP response to HTTPS client'],
    "digest": [
        "manifest verification failed for digest sha256:aa",
        "filesystem layer verification failed for digest sha256:bb",
    ],
    "limit": ["toomanyrequests: You have reached your unauthenticated pull rate limit."],
    "disk": ["failed to register layer: write /content: no space left on device"],
    "credentials": [
        'Head "http://127.0.0.1:5000/v2/x/manifests/1": no basic auth credentials',
        "pull access denied for x/y, repository does not exist or may require 'docker login': denied: requested access "
        "to the resource is denied",
        "unauthorized: authentication required",
        "unexpected status from HEAD request to https://r.example/v2/a/manifests/1: 403 Forbidden",
        "error parsing HTTP 401 response body: unexpected end of JSON input",
    ],
    "missing": [
        "manifest unknown: manifest unknown",
        "manifest for 127.0.0.1:5000/x:1 not found: manifest unknown: manifest unknown",
        "no matching manifest for linux/arm64 in the manifest list entries: no match for platform: not found",
    ],
    "slow": [
        "net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)",
        "context deadline exceeded",
        'Get "https://r.example/v2/": net/http: TLS handshake timeout',
    ],
    "gone": [
        'Get "http://127.0.0.1:5001/v2/": dial tcp 127.0.0.1:5001: connect: connection refused',
        "dial tcp: lookup r.example on 10.0.0.1:53: no such host",
        'Get "https://r.example/v2/": EOF',
    ],
    "refused": ["something nobody has seen before"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in SAID.items() for text in texts])
def test_the_daemon_s_words_are_understood_and_kept(kind: str, text: str) -> None:
    assert kind_of(text) == kind
    error = explain(text, "r.example:5000/a/b:1", "thing")
    assert (error.kind, error.why) == (kind, text)
    assert error.what and error.fix and "{" not in error.what + error.fix
    assert error.exit_code == 1


@pytest.mark.parametrize(
    "name",
    [
        "127.0.0.1:54403/a",
        "127.0.0.1:403/a",
        "r.example/403",
        "geofence.example/a",
        "eof.example/a",
        "r.example/timeout/a",
    ],
)
def test_what_a_port_or_a_name_happens_to_contain_is_not_taken_for_the_reason(name: str) -> None:
    assert kind_of(f'Get "http://{name}/v2/": dial tcp: connect: connection refused') == "gone"
    assert kind_of(f"manifest for {name}:1: manifest unknown: manifest unknown") == "missing"


def test_the_ca_goes_where_the_daemon_reads_it_and_not_into_our_settings() -> None:
    private, hub = (explain("x509:", name, "x") for name in ("r.example:5000/a:1", "docker.io/a/b:1"))
    assert "/etc/docker/certs.d/r.example:5000/ca.crt" in private.fix and "no restart" in private.fix
    assert "update-ca-certificates" in hub.fix and "certs.d" not in hub.fix
    assert all("images.ca_file is for builds" in error.fix for error in (private, hub))


@pytest.mark.parametrize(
    ("reference", "registry"),
    [
        ("r.example/a:1", "r.example"),
        ("localhost/a", "localhost"),
        ("127.0.0.1:5000/a/b@sha256:1", "127.0.0.1:5000"),
        ("vllm/vllm-openai:v1", "docker.io"),
        ("alpine", "docker.io"),
    ],
)
def test_a_name_without_a_registry_is_docker_hub_s(reference: str, registry: str) -> None:
    assert registry_of(reference) == registry
