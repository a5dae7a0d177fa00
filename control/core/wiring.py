"""Names, ports and paths that two or more parts must agree on; each written once.

Compose files cannot import Python: what they need of this page reaches them through `.env` and
`run/engines.yaml`, and `tests/contract/test_one_home.py` greps for strays.
"""

# Inside the gateway container.
GATEWAY_PUBLIC_PORT = 8000
GATEWAY_INTERNAL_PORT = 9901  # `/ready` and `/metrics`; never published
GATEWAY_ENTRY = "/opt/flashbox/gateway/entry.py"  # PID 1, and what asks it
GATEWAY_ADMIN_SOCKET = "/run/flashbox/admin.sock"
ENVOY_DIR = "/etc/flashbox/envoy"  # the rendered folder run/envoy, mounted read-only
ENVOY_DYNAMIC_DIR = f"{ENVOY_DIR}/dynamic"  # Envoy watches this folder; files are replaced by rename

# Inside every replica container.
ENGINE_PORT = 8000  # the OpenAI server, reached by the gateway only
GATE_PORT = 9100  # `/ready` and `/state` of PID 1
GATE_SCRIPT = "/opt/flashbox/gate/gate.py"
CONTROL_PORT = 9200  # faults of the stub; the internal network only
WEIGHTS_MOUNT = "/models"  # the folder weights.path, read-only
CACHE_HOME = "/cache"  # the volume of compiled kernels; HOME of the server

# Secrets: files in the clone's secrets/ folder, seen by containers under /run/secrets.
SECRETS_MOUNT = "/run/secrets"
UPSTREAM_KEY = "upstream_key"  # gateway -> replica
API_KEYS_FILE = "secrets/api-keys.json"  # digests, names and owners; never a key

# The certificate of the public port. `current` is a link to a folder beside it, so that both files change at once.
TLS_FOLDER = "secrets/tls"
TLS_DIR = "/etc/flashbox/tls"  # the same folder, mounted read-only
TLS_CURRENT = "current"
TLS_CERTIFICATE = "tls.crt"
TLS_KEY = "tls.key"
TLS_SECRET = "server_certificate"

# Names of Envoy's resources that more than one file mentions.
ENGINE_CLUSTER = "vllm"  # what dashboards and alerts call it
UPSTREAM_KEY_SECRET = "upstream_key"

# The policy service: judges request bodies for the gateway. Two processes, so that one may die.
POLICY_PORTS = (9300, 9301)  # Envoy's external processing, gRPC
POLICY_METRICS_PORT = 9390  # `/metrics` and `/ready`
POLICY_CLUSTER = "policy"
POLICY_FILTER = "flashbox.policy"
POLICY_DIR = "/etc/flashbox/policy"  # the rendered folder run/policy, mounted read-only

# The budget service: counts tokens and streams of keys, and writes down usage. One process, one owner of the counts.
BUDGET_PORT = 9400  # Envoy's rate limit service, gRPC: what has ended
BUDGET_CHECK_PORT = 9401  # Envoy's question before a request goes on, HTTP/1.1
BUDGET_METRICS_PORT = 9490  # `/metrics` and `/ready`
BUDGET_CLUSTER = "budget"  # asked before a request passes: a short time, then open
BUDGET_DONE_CLUSTER = "budget_done"  # told when a request ends: repeated until it is heard
BUDGET_DIR = "/etc/flashbox/budget"  # the rendered folder run/budget, mounted read-only
BUDGET_STATE = "/var/lib/flashbox/budget"  # the volume `usage`: journal and ledger
BUDGET_FILTER = "flashbox.budget"
CHARGE_FILTER = "flashbox.charge"
USAGE_FILTER = "flashbox.usage"
AFFINITY_HEADER = "x-flashbox-affinity"  # the conversation's name, from the policy service; what hosts are chosen by

# Where request logs go with profile monitoring.
COLLECTOR_HOST = "otel-collector"
COLLECTOR_PORT = 4318  # OTLP over HTTP
COLLECTOR_CLUSTER = "otel_collector"

# Host parts of the addresses in network.engine_subnet. Replicas and the gateway are fixed; Docker
# hands out the upper half (ip_range) to everything else, so the two never collide.
GATEWAY_HOST = 2
POLICY_HOST = 3
BUDGET_HOST = 4
FIRST_REPLICA_HOST = 10
MAX_REPLICAS = 64

# Compose profiles. Active replicas carry none.
PROFILES = ("monitoring", "autoscale")
STANDBY_PROFILE = "standby"
UNAVAILABLE_PROFILE = "unavailable"

REPLICA_LABEL = "flashbox.replica"
KIND_LABEL = "flashbox.kind"
CONTENT_LABEL = "flashbox.content"  # SHA-256 of everything an image was built from
