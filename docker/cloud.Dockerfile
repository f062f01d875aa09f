# Every pod of the Ray cluster: vLLM under Ray Serve, for CPU or GPU. Build from the top of the repository:
#   docker build -f docker/cloud.Dockerfile --build-arg ACCELERATOR=cpu -t isthmus-cloud:0.1.0-cpu .
#   docker build -f docker/cloud.Dockerfile --build-arg ACCELERATOR=gpu -t isthmus-cloud:0.1.0-gpu .
# Give PYTHON_DIGEST=sha256:… for a build that can be repeated. The GPU build brings CUDA in its wheels; the driver
# comes from the node.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG PYTHON_DIGEST=
ARG ACCELERATOR=cpu

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
WORKDIR /src
COPY requirements requirements
COPY pyproject.toml README.md LICENSE ./
COPY shared shared
COPY edge edge
COPY router router
COPY cloud cloud
COPY loadtests loadtests

FROM build AS packages-cpu
# The list is the whole closure, chosen by hand: resolving it again would add gigabytes.
RUN pip install --ignore-installed --prefix=/install --no-deps --requirement requirements/cloud-cpu.txt \
 && pip install --ignore-installed --prefix=/install --no-deps .

FROM build AS packages-gpu
ARG RAY_VERSION=2.60.0
# pyproject.toml bounds the versions of our own extra.
# hadolint ignore=DL3013
RUN pip install --ignore-installed --prefix=/install '.[cloud,otel]' "ray[serve,llm]==${RAY_VERSION}"

# A stage of this file, not an image.
# hadolint ignore=DL3006
FROM packages-${ACCELERATOR} AS packages
RUN mkdir -p /install/share/isthmus \
 && pip inspect --path "$(echo /install/lib/python3.*/site-packages)" \
    > /install/share/isthmus/packages.json

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}
ARG PYTHON_IMAGE
ARG PYTHON_DIGEST
ARG ACCELERATOR
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="isthmus-cloud" \
      org.opencontainers.image.version="${VERSION}-${ACCELERATOR}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.base.digest="${PYTHON_DIGEST}" \
      isthmus.dev/sbom="/usr/local/share/isthmus/packages.json"
# ca-certificates: Ray is pointed at its bundle for a Redis with TLS. wget: KubeRay's readiness probe of workers runs
# it. g++: sampling kernels are compiled at their first use.
# The distribution of the base image pins these: its security fixes should come in.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates g++ libgomp1 libnuma1 wget \
 && rm -rf /var/lib/apt/lists/*
# Into /usr/local rather than a virtual environment: KubeRay starts `ray` from a shell of its own.
COPY --from=packages /install /usr/local
RUN groupadd --gid 10001 ray \
 && useradd --uid 10001 --gid 10001 --home-dir /home/ray --create-home --shell /bin/bash ray \
 && install -d -o 10001 -g 0 -m 0775 /cache \
 && chgrp -R 0 /home/ray && chmod -R g=u /home/ray
# HOME and USER are said, and the folders are group 0's too: OpenShift runs a user of its own choice in that group, whom
# the user database does not know.
ENV HOME=/home/ray USER=ray HF_HOME=/cache/huggingface VLLM_CACHE_ROOT=/cache/vllm RAY_USAGE_STATS_ENABLED=0 VLLM_NO_USAGE_STATS=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /home/ray
EXPOSE 6379 8000 8080 8265
CMD ["isthmus", "cloud", "serve"]
