#!/bin/sh
# Chromium for the page's tests: Debian's package as root, Playwright's own download elsewhere.
# Usage: install_browser.sh PYTHON
set -eu
python=$1

if command -v chromium >/dev/null 2>&1; then
    exit 0
fi
if "$python" -c '
import os, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    sys.exit(not os.path.exists(playwright.chromium.executable_path))
'; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium
else
    "$python" -m playwright install chromium
fi
