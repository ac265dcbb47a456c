"""Token texts that want to be more than text."""

from __future__ import annotations

CORPUS = {
    "image": "<img src=x onerror=window.__hit=1>",
    "script": "</script><script>window.__hit=1</script>",
    "template literal": "${window.__hit=1}",
    "handlebars": "{{constructor.constructor('window.__hit=1')()}}",
    "backtick": "`+(window.__hit=1)+`",
    "backslash": "\\n\\u0041\\",
    "children": "@children",
    "direction override": "abc\u202edcba\u2066x",
    "null": "a\x00b",
    "escape": "\x1b[31mred\x1b[0m",
    "lone surrogate": "a\ud800b",
    "entity": "&lt;b&gt;&amp;",
    "plotly": "%{x}<b>bold</b><a href='javascript:window.__hit=1'>a</a>",
    "url": "javascript:window.__hit=1",
    "prototype": "__proto__",
    "long": "x" * 10_000,
    "emoji": "👩‍👩‍👧‍👦",
    "formula": '=HYPERLINK("http://example.invalid","x")',
}
