# Source it on a GPU machine, in the project's root, after `make bundle` elsewhere:  . .whl/setup
# It makes .whl/env once: an environment over the machine's torch with the bundle's wheels and spbench
# of this tree. `python`, `spbench` and `mpirun` are then those of the environment.
_env=$PWD/.whl/env
_torch=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])') || return 1
# An environment that came from another machine does not work here.
if ! "$_env/bin/python" -c 'import spbench, torch' 2>/dev/null; then
    rm -rf "$_env"
    python3 -m venv --without-pip "$_env" || return 1
    _site=$("$_env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # "zz" sorts last: if the environment and the machine both have a package, the environment's counts.
    echo "$_torch" >"$_site/zz_torch.pth"
    printf '%s\n' "$PWD/core" "$PWD/console" "$PWD/workers" >"$_site/spbench_tree.pth"
    # A file, because a glob over a folder without wheels is an error in one shell and text in another.
    (cd .whl && find . -maxdepth 1 -name '*.whl') >.whl/wheels.txt
    (cd .whl && python3 -m pip --python "$_env/bin/python" install --quiet --no-index --no-deps \
        --no-compile --disable-pip-version-check --requirement wheels.txt) || return 1
    printf '#!/bin/sh\nexec "%s" -m spbench "$@"\n' "$_env/bin/python" >"$_env/bin/spbench"
    chmod +x "$_env/bin/spbench"
fi
export PATH="$_env/bin:$PATH" PYTHONUNBUFFERED=1
hash -r
python -c 'import torch
gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
print("torch", torch.__version__, gpus or "sees no GPU")'
