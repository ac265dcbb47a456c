"""Files the page serves beside Gradio's own: plotly.js out of the installed wheel, so that versions match."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Route

from viz.viewer import DIMR_ENTRY, script, style

STATIC = Path(__file__).resolve().parent / "static"
PLOTLY_URL = "viasd/plotly.min.js"  # relative to the page, so that a proxy's prefix is kept


def plotly_file() -> Path | None:
    """plotly.min.js of the installed plotly, found without importing it; None when there is none."""
    spec = find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return path if path.is_file() else None


def plotly_url() -> str:
    return PLOTLY_URL if plotly_file() else ""


def routes() -> list[BaseRoute]:
    """Routes for the web server, ahead of Gradio's."""
    path = plotly_file()
    if path is None:
        return []

    async def plotly(request: object) -> FileResponse:
        return FileResponse(path, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})

    return [Route("/" + PLOTLY_URL, plotly)]


def css() -> str:
    return style() + "\n" + (STATIC / "page.css").read_text("utf-8")


def narrow_script() -> str:
    """Runs once in a fresh tab: a phone starts with the settings folded away."""
    return (STATIC / "narrow.js").read_text("utf-8")


def viewer_script() -> str:
    """The viewer's script behind the adapter that turns packed values back into batches."""
    return _adapted(script())


def dimr_script() -> str:
    """The script of the layer-mask panel, likewise."""
    return _adapted(script(DIMR_ENTRY))


def _adapted(code: str) -> str:
    adapter = (STATIC / "adapter.js").read_text("utf-8")
    return f"{adapter}((props, server) => {{\n{code}\n}})(readable, reader);\n"


def notice_script() -> str:
    return (STATIC / "notice.js").read_text("utf-8")
