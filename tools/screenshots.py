"""Takes pictures of the lab's pages, for people to look at: `make screenshots`.

Each page after its main action, 1280 and 390 pixels wide, light and dark, the whole page, into screenshots/.
With `--keep` those of KEPT also go to docs/images/lab/, the top of the page alone.

    python tools/screenshots.py                       all of them
    python tools/screenshots.py filters --dark --wide  one page, one look
    python tools/screenshots.py --keep                and those of the documentation
    python tools/screenshots.py --time                no pictures: how long until a page shows its first one
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

import evenbins
from evenbins.study.commands.lab import listen
from evenbins.study.lab.app import create_app

ROOT = Path(__file__).resolve().parent.parent
EVERYTHING = ROOT / "screenshots"
CHOSEN = ROOT / "docs" / "images" / "lab"

# Page, address, and what must be seen before the picture is taken; the first of it is the first useful one.
PAGES = {
    "filters": ("/filters?policy=fill", [".plot .line", "tr.chosen", ".plot .bar"]),
    "fingerprints": ("/fingerprints", [".fingerprints .over", ".tallies td"]),
    "tables": ("/tables", [".plot .line", "tr[aria-selected]", ".arrows .move"]),
    "rings": ("/rings", [".circle .server", ".plot .outline"]),
    "routing": ("/routing", [".share"]),
    "dedup": ("/dedup", [".plot .line", "tr.chosen", "text=Measured on this machine"]),
    "inspect": ("/inspect", [".drop", "text=Planned beside measured"]),
    "papers": ("/papers", [".facts", ".paperfigure.drawn"]),
}
WIDTHS = {"wide": (1280, 900), "phone": (390, 844)}
# (page, width, theme): shown in the documentation.
KEPT = {
    ("filters", "wide", "light"), ("filters", "wide", "dark"), ("filters", "phone", "light"),
    ("tables", "wide", "light"), ("rings", "wide", "light"), ("papers", "wide", "light"),
    ("dedup", "wide", "light"), ("inspect", "wide", "light"),
}  # fmt: skip
TOP = {"papers": 1360}  # pixels of a wide page that are kept, if not 1000
SETTLED = "main .progress:visible"
LONGEST_WAIT = 120_000


def main() -> None:
    """Start the lab and a browser, and take the pictures asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", choices=[[], *PAGES], help="all by default")
    for name in (*WIDTHS, "light", "dark"):
        parser.add_argument(f"--{name}", action="store_true", help=f"only {name}")
    parser.add_argument("--keep", action="store_true", help="write those of the documentation as well")
    parser.add_argument("--time", action="store_true", help="take times instead")
    asked = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("screenshots need chromium: make system-packages (apt-get install chromium)")
    widths = [each for each in WIDTHS if getattr(asked, each)] or list(WIDTHS)
    themes = [each for each in ("light", "dark") if getattr(asked, each)] or ["light", "dark"]
    EVERYTHING.mkdir(exist_ok=True)
    address = serve()
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        for page in asked.pages or PAGES:
            if asked.time:
                first_picture(browser, address, page)
                continue
            for width in widths:
                for theme in themes:
                    take(browser, address, page, width, theme, keep=asked.keep)
        browser.close()


def serve() -> str:
    """Serve the lab in a thread, until the program ends."""
    socket = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_app(), log_level="warning", access_log=False))
    threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True).start()
    return f"http://127.0.0.1:{socket.getsockname()[1]}"


def take(browser: Browser, address: str, name: str, width: str, theme: str, *, keep: bool) -> None:
    """Take one picture; the whole page, and for the documentation its top."""
    path, needed = PAGES[name]
    size = {"width": WIDTHS[width][0], "height": WIDTHS[width][1]}
    context = browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(LONGEST_WAIT)
    page.goto(address + path)
    if name == "inspect":
        page.set_input_files("input[type=file]", an_inspected_file())
    for selector in needed:
        page.wait_for_selector(selector)
    settle(page)
    file = f"{name}-{width}-{theme}.png"
    page.screenshot(path=EVERYTHING / file, full_page=True)
    print(EVERYTHING / file)
    if keep and (name, width, theme) in KEPT:
        CHOSEN.mkdir(parents=True, exist_ok=True)
        page.set_viewport_size(
            {"width": size["width"], "height": TOP.get(name, 1000) if width == "wide" else 844}
        )
        page.wait_for_timeout(300)
        page.screenshot(path=CHOSEN / file)
        shrink(CHOSEN / file)
        print(CHOSEN / file, f"{(CHOSEN / file).stat().st_size / 1024:.0f} KiB")
    context.close()


def an_inspected_file() -> Path:
    """Build a filter; return its file."""
    made = evenbins.BalancedBloomFilter(100_000, fpr=1e-4, policy="multilevel")
    made.add_many(range(100_000))
    path = Path(tempfile.gettempdir()) / "keys.evb"
    made.save(path)
    return path


def first_picture(browser: Browser, address: str, name: str, rounds: int = 7) -> None:
    """Print the time from asking for a page until its first useful picture: of a fresh browser each time."""
    _, needed = PAGES[name]
    times = []
    for _ in range(rounds):
        context = browser.new_context(reduced_motion="reduce")
        page = context.new_page()
        begun = time.perf_counter()
        page.goto(f"{address}/{name}")
        page.wait_for_selector(needed[0])
        times.append(time.perf_counter() - begun)
        context.close()
    listed = " ".join(f"{each:.2f}" for each in times)
    print(f"{name:8} first picture after {min(times):.2f} s (the first time {times[0]:.2f} s; all: {listed})")


def settle(page: Page) -> None:
    """Wait until no bar shows work under way, twice in a row."""
    calm, begun = 0, time.monotonic()
    while calm < 3 and time.monotonic() - begun < LONGEST_WAIT / 1000:
        page.wait_for_timeout(250)
        calm = 0 if page.locator(SETTLED).count() else calm + 1


def shrink(path: Path) -> None:
    """Write the picture with a palette of 256 colours, the rare ones kept: a third of the bytes."""
    try:
        from PIL import Image
    except ImportError:  # comes with matplotlib
        return
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(
            256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)


if __name__ == "__main__":
    main()
