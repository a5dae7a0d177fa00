"""The commands by name, without their code."""

from __future__ import annotations

from collections.abc import Mapping

# Command -> what it is for. The module of the same name is imported when the command is used, so that help is quick.
COMMANDS: Mapping[str, str] = {
    "init": "Write config/stack.yaml, the secrets and the rendered files",
    "up": "Start the stack and wait until it answers",
    "status": "Show the gateway, the replicas and their phases",
    "smoke": "Stream one chat completion through the gateway",
    "probe": "Try the closed doors of the gateway from outside",
    "logs": "Show the logs of the containers",
    "restart": "Restart replicas one at a time without cutting a stream",
    "stop": "Drain and stop; containers and networks stay",
    "down": "Stop and remove all but the volumes",
    "gateway": "Apply settings of the gateway live, and show what it goes by",
    "keys": "Add, list, limit, rotate and revoke API keys",
    "usage": "Show requests and tokens by key, day or model",
    "plan": "Show what would run on this machine",
    "doctor": "Check this machine and say how to mend it",
    "explain": "Say what refuses a request or a start, and how to change it",
    "config": "Show settings and where they come from",
    "render": "Write the files that Docker Compose and Envoy read",
    "images": "Build and list the images",
    "version": "Show the version",
}
