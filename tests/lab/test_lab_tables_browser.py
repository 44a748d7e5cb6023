"""The page Tables in a real browser: curves, designs, and a small table that is watched."""

from __future__ import annotations

from typing import Any

from evenbins.study.lab.tables import small_table

SMALL: dict[str, Any] = {
    "scheme": "second-chance", "levels": 4, "slots": 1, "keys": 40, "space": 1.1, "turns": 40,
    "deletions": False, "seed": 1,
}  # fmt: skip


def ready(page: Any) -> None:
    """Wait for the curves and the small table."""
    page.locator("path.line").first.wait_for()
    page.locator(".levels .cell").first.wait_for()
    page.wait_for_function("() => document.querySelector('[data-value=point] dd') !== null")


def value(page: Any, name: str) -> str:
    return str(page.locator(f"td[data-value='{name}']").inner_text())


def test_curves_a_point_and_the_designs(page: Any) -> None:
    page.open("/tables?deletions=1&levels=3&keys=1e5")
    ready(page)
    assert page.locator("path.line").count() == 3
    assert page.locator(".plot circle.mark").count() == 1
    row = page.get_by_role("row").filter(has_text="least-loaded")
    row.wait_for(timeout=60_000)
    assert "second-chance" in page.locator("tr[aria-selected=true]").inner_text()
    row.get_by_role("button").click()
    page.wait_for_function("() => new URL(location).searchParams.get('scheme') === 'least-loaded'")
    page.wait_for_function(
        "() => document.querySelector('.copy textarea').value.includes('scheme=\"least-loaded\"')"
    )
    assert "evenbins design table --keys 100000" in page.locator(".copy textarea").nth(1).input_value()


def test_a_slider_moves_the_point_by_keyboard(page: Any) -> None:
    page.open("/tables?deletions=1&levels=3")
    ready(page)
    before = page.locator(".plot circle.mark").get_attribute("cx")
    page.get_by_label("Overflow fraction of keys").focus()
    for _ in range(3):
        page.keyboard.press("PageDown")
    page.wait_for_function(
        "before => document.querySelector('.plot circle.mark').getAttribute('cx') !== before", arg=before
    )
    page.wait_for_function("() => Number(new URL(location).searchParams.get('overflow')) < 0.002")


def test_stepping_shows_looks_a_move_and_the_list(page: Any) -> None:
    page.open("/tables")
    ready(page)
    assert "The one move" in page.locator(".caption").inner_text()  # the last one is what is shown first
    page.get_by_role("button", name="To the end", exact=True).click()
    last = small_table(**SMALL)["operations"][-1]["counts"]
    assert [value(page, name) for name in ("keys", "moves", "overflow")] == [
        str(last[name]) for name in ("keys", "moves", "overflow")
    ]
    page.get_by_role("button", name="To the start").click()
    assert "The table is empty" in page.locator(".caption").inner_text()
    page.get_by_role("button", name="One step", exact=True).click()
    assert "Key 1 looks at its bucket" in page.locator(".caption").inner_text()
    assert page.locator(".bucket.looked").count() == 1
    page.get_by_role("button", name="To the end of this key").click()
    assert value(page, "keys") == "1"
    page.get_by_role("button", name="First move").click()
    assert "The one move" in page.locator(".caption").inner_text()
    assert page.locator(".arrows path.move").count() == 1
    assert page.locator(".cell.moved").count() == 1
    assert page.locator(".bucket.looked.full").count() >= 2
    page.get_by_role("button", name="One step", exact=True).click()
    assert "lands in" in page.locator(".caption").inner_text()
    assert value(page, "moves") == "1"
    page.get_by_role("button", name="One step back").click()
    assert "The one move" in page.locator(".caption").inner_text()
    page.get_by_role("button", name="First overflow").click()
    assert "goes to the overflow list" in page.locator(".caption").inner_text()
    assert page.locator("[data-value=list] .cell").count() == 1
    assert float(value(page, "overflow-predicted")) < 1.5


def test_deletions_and_the_retry_of_the_list(page: Any) -> None:
    address = "/tables?deletions=1&scheme=least-loaded&slots=2&levels=2&n=120&room=1"
    page.open(address)
    ready(page)
    told = small_table(**SMALL | {
        "deletions": True, "scheme": "least-loaded", "slots": 2, "levels": 2, "keys": 120, "turns": 120,
        "space": 1.0,
    })  # fmt: skip
    last = told["operations"][-1]["counts"]
    page.get_by_role("button", name="To the end", exact=True).click()
    assert value(page, "overflow") == str(last["overflow"])
    assert value(page, "returns") == str(last["returns"])
    assert page.locator("[data-value=list] .cell").count() == last["overflow"]
    assert "in the long run" in page.locator("table.tallies").inner_text()
    page.get_by_role("button", name="First deletion").click()
    assert "is deleted from" in page.locator(".caption").inner_text()
    at = page.locator(".count").inner_text()
    page.wait_for_function("at => new URL(location).searchParams.get('at') === at", arg=at.partition(" ")[0])
    page.reload()
    ready(page)
    page.wait_for_function("text => document.querySelector('.count').textContent === text", arg=at)


def test_play_moves_on_and_space_pauses(browser: Any, lab: str) -> None:
    from lab_browser import open_page

    context, page, watch = open_page(browser, lab, reduced_motion="no-preference", color_scheme="dark")
    page.open("/tables?at=0&deletions=1&levels=2")
    ready(page)
    page.locator(".stage").focus()
    page.keyboard.press("Space")
    page.wait_for_function("() => parseInt(document.querySelector('.count').textContent) > 1")
    page.keyboard.press("Space")
    at = page.locator(".count").inner_text()
    page.wait_for_timeout(400)
    assert page.locator(".count").inner_text() == at
    assert page.evaluate("getComputedStyle(document.body.parentElement).colorScheme") == "light dark"
    context.close()
    watch.check()


def test_wrong_parameters_are_answered_in_words(page: Any) -> None:
    page.watch.allowed = ("400 (Bad Request)",)
    page.open("/tables?levels=9")
    page.get_by_role("alert").filter(has_text="levels must be a whole number from 2 to 6").wait_for()


def test_a_notice_stays_until_its_question_is_answered(page: Any) -> None:
    page.watch.allowed = ("400 (Bad Request)",)
    page.open("/tables?n=5000&deletions=1&levels=2")
    notice = page.get_by_role("alert").filter(has_text="keys must be a whole number from 4 to 160")
    notice.wait_for()
    page.locator("path.line").first.wait_for()
    page.wait_for_function("() => document.querySelector('[data-value=point] dd') !== null")
    assert notice.is_visible()
    box = page.get_by_label("Keys, as a number").nth(1)
    box.fill("30")
    box.press("Enter")
    page.locator(".levels .cell").first.wait_for()
    assert not notice.is_visible()


def test_a_scheme_without_equations_says_so(page: Any) -> None:
    page.open("/tables?scheme=conservative&slots=2&deletions=1&levels=2")
    page.get_by_text("has no curve here under deletions").wait_for()
    page.locator(".levels .cell").first.wait_for()


def test_a_phone_shows_everything_without_sideways_scrolling(phone: Any) -> None:
    phone.open("/tables?slots=8&scheme=least-loaded&levels=2&n=100&room=1&deletions=1")
    ready(phone)
    assert not phone.scrolls_sideways()
    phone.get_by_role("button", name="First move").click()
    assert phone.locator(".arrows path.move").count() == 1
    assert not phone.scrolls_sideways()
