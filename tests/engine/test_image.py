"""The image of kind cpu: what it holds, and what it does not."""

from __future__ import annotations

import os

from tests.engine.real import docker


def inside(image: str, script: str) -> str:
    return docker("run", "--rm", "--network", "none", "--entrypoint", "sh", image, "-c", script)


def test_its_packages_are_compiled_as_a_start_without_takes_twice_as_long(engine_image: str) -> None:
    site = "/opt/flashbox/venv/lib/python3*/site-packages"
    for package in ("vllm", "torch", "transformers"):
        sources, compiled = (
            int(inside(engine_image, f"find {site}/{package} -name '{pattern}' | wc -l"))
            for pattern in ("*.py", "*.pyc")
        )
        assert compiled >= 0.98 * sources > 100, (package, sources, compiled)


def test_the_tiny_model_is_a_few_kilobytes_and_has_no_weights(engine_image: str) -> None:
    listed = inside(engine_image, "cd /opt/flashbox/tiny-model; for f in *; do echo $f $(wc -c <$f); done")
    sizes = {name: int(size) for name, size in (line.split() for line in listed.splitlines())}
    assert set(sizes) == {"config.json", "tokenizer.json", "tokenizer_config.json"}
    assert sum(sizes.values()) < 20_000


def test_no_cuda_library_but_its_runtime_is_inside(engine_image: str) -> None:
    assert int(docker("image", "inspect", "-f", "{{.Size}}", engine_image)) < 2.2e9
    large = inside(
        engine_image, "find / -xdev -size +100k -name 'lib*.so*' | grep -E 'cublas|cudnn|nccl|torch_cuda' || true"
    )
    assert large == ""


def test_the_company_ca_and_the_index_are_in_no_layer(engine_image: str) -> None:
    history = docker("history", "--no-trunc", engine_image)
    for name in ("PIP_INDEX_URL", "HTTPS_PROXY", "https_proxy"):
        assert os.environ.get(name, "not set at all") not in history
    script = "find / -xdev \\( -name pip.conf -o -path '/run/build/*' \\) -size +0 2>/dev/null || true"
    assert inside(engine_image, script) == ""
