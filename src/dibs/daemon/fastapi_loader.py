"""FastAPI as the daemon loads it."""

from pydantic import BaseModel


def load_fastapi() -> None:
    """Load it before anybody else does, without what only a description of the API needs: that is made when asked.

    Every model of OpenAPI would be built at import, a megabyte of them.
    """
    BaseModel.model_config["defer_build"] = True
    try:
        import fastapi.openapi.models  # noqa: F401
    finally:
        del BaseModel.model_config["defer_build"]
