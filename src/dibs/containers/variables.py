"""Which captured variables a container gets: all but those of the host's own paths and interpreter."""

from collections.abc import Iterable

# The image has its own programs, libraries and interpreter; paths of the host lead nowhere in it.
_LEFT_OUT = frozenset(
    (
        *("PATH", "HOME", "SHELL", "TMPDIR", "TMP", "TEMP", "OLDPWD", "MAIL", "_", "ENV", "BASH_ENV"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
        *("PKG_CONFIG_PATH", "MANPATH", "INFOPATH", "MODULEPATH", "MODULESHOME", "LMOD_CMD", "LOADEDMODULES"),
        *("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONEXECUTABLE", "PYTHONUSERBASE", "VIRTUAL_ENV"),
        *("CUDA_HOME", "CUDA_PATH", "CUDNN_PATH", "ROCM_PATH", "ROCM_HOME", "JAVA_HOME", "NODE_PATH", "PERL5LIB"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "ICEAUTHORITY"),
    )
)
_LEFT_OUT_FAMILIES = (
    *("BASH_FUNC_", "XDG_", "CONDA_", "_CE_", "MAMBA_", "PYENV_", "PIXI_", "UV_", "NVM_", "__LMOD_", "_LMFILES_"),
    *("DOCKER_", "CONTAINERS_", "APPTAINER_", "SINGULARITY_", "LESS"),
)


def is_for_containers(name: str) -> bool:
    """Whether a captured variable is passed on. What the user sets with `--env` is, whatever its name."""
    return name not in _LEFT_OUT and not name.startswith(_LEFT_OUT_FAMILIES) and "%" not in name


def left_out(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not is_for_containers(name))
