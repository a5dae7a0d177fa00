"""What `explain` says of refusals that are no matter of policy: keys, and bodies that cannot be judged."""

from __future__ import annotations

from control.core.explain import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        id="key.expires",
        title="A key is used before it expires",
        refuses="A request with a key that has expired, or with the former one of a rotated key.",
        answer="401 authentication_error, code expired_api_key.",
        why="A key that ends by itself needs nobody who remembers it.",
        change="python ctl.py keys list shows dates; keys add NAME --expires 30d; keys rotate NAME --keep 24h.",
    ),
    Entry(
        id="key.models",
        title="A key asks for a model that it may use",
        refuses="Another model than those of the key (keys add NAME --model M), in mode observe too; then also a body "
        "that cannot be read, which could ask for one.",
        answer="404 not_found_error, code model_not_found, param model; /v1/models still lists what is served.",
        why="Who may use what is no matter of policy.",
        change="Revoke the key and add it with other models.",
    ),
    Entry(
        id="body.size",
        title="A body is within the limit once it is unpacked",
        refuses="A compressed body that unpacks to more than policy.body.",
        answer="413 invalid_request_error, code request_too_large.",
        why="A few kilobytes can unpack to gigabytes.",
        change="python ctl.py explain policy.body",
    ),
    Entry(
        id="body.encoding",
        title="A compressed body can be read",
        refuses="A content-encoding that is not known, or a body that is not complete and valid in it.",
        answer="415 with code unsupported_encoding, or 400 with code invalid_encoding.",
        why="What cannot be read cannot be judged.",
        change="Send gzip, zstd or no encoding.",
    ),
    Entry(
        id="body.media_type",
        title="A body is JSON and says so",
        refuses="A content-type that is not application/json.",
        answer="400 invalid_request_error, code unsupported_media_type.",
        why="The engines take nothing else on these routes.",
        change="Send Content-Type: application/json.",
    ),
    Entry(
        id="body.complexity",
        title="A body has as many values as its size lets expect",
        refuses="A body that takes more memory to parse than bodies of its size have.",
        answer="413 invalid_request_error, code request_too_complex.",
        why="Millions of empty lists need a hundred times their own size.",
        change="Send fewer values, or a smaller body.",
    ),
    Entry(
        id="body.capacity",
        title="There is room to judge a large body",
        refuses="A large body while others take the memory of the policy service.",
        answer="503 overloaded_error, code over_capacity, with Retry-After.",
        why="Memory is bounded; large bodies are admitted one by one.",
        change="Try again. If it stays, look who uploads: python ctl.py logs gateway.",
    ),
    Entry(
        id="body.slow",
        title="A large upload makes progress while others wait for its place",
        refuses="An upload that nearly stands still.",
        answer="408 timeout_error, code upload_too_slow, with Retry-After.",
        why="A slow upload would keep its place in the memory from the others.",
        change="Try again over a better connection, or send less.",
    ),
    Entry(
        id="body.unjudged",
        title="The policy service answers",
        refuses="Every request with a body while neither process of it answers; streams in flight go on.",
        answer="503, code policy_unavailable, with Retry-After.",
        why="What nobody has judged does not reach a replica.",
        change="python ctl.py status; python ctl.py logs policy. It comes back by itself.",
    ),
    Entry(
        id="budget.answers",
        title="The budget service answers the check of tokens and streams",
        answer="Nothing is refused: a check without an answer within 0.25 s lets the request pass. What ends meanwhile "
        "is charged when the service is back, for up to 60 s; what runs then holds no place of its key's streams.",
        why="A service that counts must not stop what it counts. A key can be over its limits for as long as this "
        "lasts, and pays afterwards.",
        change="python ctl.py gateway status says whether it fails open and why; python ctl.py logs budget. It comes "
        "back by itself.",
    ),
)
