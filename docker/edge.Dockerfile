# The edge agent with its llama.cpp engine, for devices that run containers. Build from the top of the repository:
#   docker build -f docker/edge.Dockerfile -t isthmus-edge:0.1.0 .
# Models are kept in the volume at /var/lib/isthmus. Give PYTHON_DIGEST=sha256:… for a build that can be repeated.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG PYTHON_DIGEST=

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
WORKDIR /src
COPY requirements/edge-router.txt requirements/
COPY pyproject.toml README.md LICENSE ./
COPY shared shared
COPY edge edge
COPY router router
COPY cloud cloud
COPY loadtests loadtests
# The list pins versions; only what the agent needs of it is installed.
RUN pip install --ignore-installed --prefix=/install --constraint requirements/edge-router.txt '.[edge,otel]' \
 && mkdir -p /install/share/isthmus \
 && pip inspect --path "$(echo /install/lib/python3.*/site-packages)" \
    > /install/share/isthmus/packages.json

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}
ARG PYTHON_IMAGE
ARG PYTHON_DIGEST
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="isthmus-edge" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.base.digest="${PYTHON_DIGEST}" \
      isthmus.dev/sbom="/usr/local/share/isthmus/packages.json"
# OpenMP, which the engine's threads use.
# The distribution of the base image pins these: its security fixes should come in.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /install /usr/local
RUN groupadd --gid 10001 isthmus \
 && useradd --uid 10001 --gid 10001 --home-dir /var/lib/isthmus --create-home --shell /usr/sbin/nologin isthmus \
 && chgrp 0 /var/lib/isthmus && chmod g=u /var/lib/isthmus
# HOME is said, and the folder is group 0's too: OpenShift runs a user of its own choice in that group.
ENV HOME=/var/lib/isthmus ISTHMUS_HOME=/var/lib/isthmus PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/isthmus
VOLUME ["/var/lib/isthmus"]
EXPOSE 8081
ENTRYPOINT ["isthmus"]
CMD ["edge", "serve"]
