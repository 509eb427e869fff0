"""Variables and arguments that hold credentials, and similar ones that do not."""

from __future__ import annotations

import os
import subprocess

import pytest

from spbench_core.credentials import hide_credentials, holds_secret, quote_args, quote_assignment

CREDENTIALS = """
SLURM_JWT SLURM_JWT_TOKEN SLURM_DBD_PASS SLURM_AUTH SLURM_AUTH_INFO SLURM_REST_JWKS
SLURM_SECRET_WORD SLURM_SPANK_PASSWD SLURM_STEP_CRED MUNGE_KEY FLUX_CURVE_CERT
PBS_AUTH_METHOD_COOKIE LSF_PASSWD COBALT_TOKEN AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID
AWS_SESSION_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE GOOGLE_APPLICATION_CREDENTIALS
GCP_SERVICE_ACCOUNT_KEY AZURE_CLIENT_SECRET AZURE_STORAGE_SAS AZURE_STORAGE_KEY
AZURE_STORAGE_CONNECTION_STRING OCI_CLI_KEY_CONTENT IBMCLOUD_API_KEY OS_PASSWORD
DIGITALOCEAN_ACCESS_TOKEN ALIBABA_CLOUD_ACCESS_KEY_SECRET DOCKER_AUTH_CONFIG DOCKER_PASSWORD
REGISTRY_AUTH REGISTRY_PASS NGC_API_KEY NGC_CLI_APIKEY NVIDIA_API_KEY SINGULARITY_DOCKER_PASSWORD
APPTAINER_DOCKER_PASSWORD CI_REGISTRY_PASSWORD QUAY_CREDS GITHUB_TOKEN GITLAB_TOKEN CI_JOB_JWT
CI_JOB_TOKEN ACTIONS_ID_TOKEN_REQUEST_TOKEN JENKINS_API_TOKEN TWINE_PASSWORD PYPI_TOKEN NPM_TOKEN
CONDA_PASSWD ARTIFACTORY_PW SPACK_MIRROR_AUTH WANDB_API_KEY HF_TOKEN HUGGING_FACE_HUB_TOKEN
TORCH_HUB_TOKEN MLFLOW_TRACKING_PASSWORD MLFLOW_TRACKING_TOKEN NEPTUNE_API_TOKEN COMET_API_KEY
CLEARML_API_SECRET_KEY SENTRY_DSN SLACK_WEBHOOK VAULT_TOKEN ANSIBLE_VAULT_PASSWORD PGPASSWORD
MYSQL_PWD REDIS_AUTH SSH_PASSPHRASE SSHPASS GPG_PASSPHRASE TLS_PRIVATE_KEY_PEM SMTP_PASS
"""
"""Variables of schedulers, clouds, registries, forges, trackers and services."""
SETTINGS = """
I_MPI_PIN I_MPI_PIN_DOMAIN I_MPI_PIN_PROCESSOR_LIST MV2_CPU_BINDING_POLICY MV2_DEFAULT_PKEY
MV2_DEFAULT_PKEY_IX MV2_DEFAULT_QKEY MV2_HCA_AWARE_PROCESS_MAPPING MVP_DEFAULT_PKEY NCCL_IB_PKEY
UCX_IB_PKEY UCX_RKEY_PTR_SEG_SIZE UCX_TLS SLURM_CPU_BIND SLURM_JOB_PARTITION
OMPI_MCA_btl_tcp_if_include OMPI_MCA_hwloc_base_binding_policy FI_PROVIDER TOKENIZERS_PARALLELISM
UCX_KERNEL_BYPASS
"""
"""Variables that change numbers."""


@pytest.mark.parametrize("name", CREDENTIALS.split())
def test_finds_credentials_by_name_in_any_case(name):
    assert holds_secret(name, "1")
    assert holds_secret(name.lower())


@pytest.mark.parametrize("name", SETTINGS.split())
def test_keeps_settings_that_change_numbers(name):
    assert not holds_secret(name, "1")


@pytest.mark.parametrize(
    "value",
    [
        "https://user:pass@registry.example.org/",
        "postgresql://spbench:word@db/runs",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "Authorization: Bearer abcdef",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "ALL,HF_TOKEN=abc",
        "NCCL_DEBUG=INFO;MY_PASSWD=abc",
    ],
)
def test_finds_credentials_in_values(value):
    assert holds_secret("SLURM_COMMENT", value)


@pytest.mark.parametrize("value", ["http://node01:8080/a", "ALL,NCCL_DEBUG=INFO", "mlx5_0:1"])
def test_keeps_other_values(value):
    assert not holds_secret("SLURM_COMMENT", value)


@pytest.mark.parametrize(
    ("args", "hidden"),
    [
        (["-x", "HF_TOKEN=a b,c"], ["-x", "HF_TOKEN=***"]),
        (["-genv", "MY_AUTH", "abc"], ["-genv", "MY_AUTH", "***"]),
        (["--export=ALL,HF_TOKEN=abc,A=1"], ["--export=ALL,HF_TOKEN=***,A=1"]),
        (["--max-tokens=5", "--key", "5"], ["--max-tokens=5", "--key", "5"]),
        (["launch.env.HF_TOKEN=a b"], ["launch.env.HF_TOKEN=***"]),
        (["https://me:word@host/x"], ["https://***@host/x"]),
        (["-n", "4", "", "MODE=1"], ["-n", "4", "", "MODE=1"]),
    ],
)
def test_hides_credentials_in_arguments(args, hidden):
    assert hide_credentials(args) == hidden


def test_hides_a_known_value_wherever_it_is():
    args = ["--option", "before:s3cret-value:after"]
    assert hide_credentials(args, {"MY_AUTH": "s3cret-value"}) == ["--option", "before:***:after"]


def test_hides_a_quoted_value_and_its_copy_in_a_script():
    script = """export HF_TOKEN='s3cret'\necho 'failed: export HF_TOKEN='"'"'s3cret'"'"''"""
    (hidden,) = hide_credentials([script])
    assert "s3cret" not in hidden
    assert "failed: export HF_TOKEN=" in hidden


@pytest.mark.parametrize(
    "args",
    [
        ["HF_TOKEN=abcd", "two  words", "", "it's"],
        ["--export=ALL,HF_TOKEN=abcd,A=1"],
        ["-genv", "HF_TOKEN", "abcd"],
        ["export HF_TOKEN=abcd && echo $HOME"],
        ["echo 'export HF_TOKEN=abcd' done"],
    ],
)
def test_a_shell_with_the_variable_gets_the_same_arguments(args):
    line = quote_args(args)
    assert "abcd" not in line
    program = f"printf '%s\\n' {line}"
    environ = os.environ | {"HF_TOKEN": "abcd"}
    process = subprocess.run(
        ["sh", "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert process.stdout == "".join(f"{word}\n" for word in args)


def test_quotes_assignments_for_a_shell():
    assert quote_assignment("HF_TOKEN", "a b", {}) == 'HF_TOKEN="$HF_TOKEN"'
    assert quote_assignment("NAME", "a b", {}) == "NAME='a b'"
    assert quote_assignment("NAME", "", {}) == "NAME=''"
