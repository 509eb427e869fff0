#!/usr/bin/env bash
# Download the wheels that spbench needs on a GPU machine without a package registry, into .whl/.
# The machine has Python, torch with CUDA and numpy; the bundle has at most 30 MB.
#
#   docs/examples/bundle.sh [PYTHON_VERSION]     run in the project's root; default: 3.12
#   docs/examples/bundle.sh --list               print the names of the wheels and exit
#
# Copy the tree with .whl/ to the machine and enter, in its root:  . .whl/setup && spbench doctor
set -euo pipefail
version=${1:-3.12}
most_bytes=30000000
[ -f constraints.txt ] || { echo "error: run it in the project's root" >&2; exit 2; }

# Installed on the machine, with torch or for it. A second torchvision would not fit its torch.
machine='torch|torchvision|setuptools|numpy|sympy|networkx|mpmath|fsspec|filelock|jinja2|markupsafe'
# Not needed there: what develops spbench, other MPIs, browsers, and large optional packages.
unneeded='mypy|mypy_extensions|ruff|grimp|import-linter|librt|ast_serialize|pathspec|tomlkit|types-.*'
unneeded+='|hatchling|trove-classifiers|mpich|impi-rt|textual-serve|aio.*|frozenlist|multidict|propcache|yarl'
unneeded+='|selenium|trio|trio-websocket|outcome|sniffio|wsproto|h11|websocket-client|PySocks|urllib3|certifi'
unneeded+='|pandas|python-dateutil|tzdata|pyarrow|scipy|safetensors'
mapfile -t requirements < <(sed -E 's/[[:space:]]*#.*//; /^$/d' constraints.txt |
    grep -viE "^($machine|$unneeded)==")

if [ "$version" = --list ]; then
    printf '%s\n' "${requirements[@]}"
    exit
fi

# pip compares the version of a platform exactly, so each one that a wheel may name is listed.
platforms=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64
    --platform manylinux1_x86_64)
for minor in 39 35 34 31 28 27 24 17 12 5; do
    platforms+=(--platform "manylinux_2_${minor}_x86_64")
done
rm -rf .whl
mkdir .whl
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version "$version" --implementation cp "${platforms[@]}" --dest .whl "${requirements[@]}"
cp docs/examples/setup.sh .whl/setup

bytes=$(cat .whl/*.whl | wc -c)
echo ".whl: ${#requirements[@]} wheels, $(((bytes + 500000) / 1000000)) MB"
if [ "$bytes" -gt "$most_bytes" ]; then
    echo "error: .whl has more than $((most_bytes / 1000000)) MB; the largest wheels:" >&2
    ls -S .whl | head -5 >&2
    exit 1
fi
