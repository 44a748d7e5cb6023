"""The fixtures of the browser, for every test module of the lab."""

from lab_browser import browser, lab, page, phone  # noqa: F401
