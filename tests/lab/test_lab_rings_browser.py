"""The page Rings in a real browser: counters are those of HashRing for the events of the address."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from evenbins import HashRing
from evenbins.study.lab.rings import replay

DEFAULTS: dict[str, Any] = {
    "servers": 20, "keys": 200, "epsilon": 0.25, "bound": "fixed", "copies": 1, "seed": 12,
}  # fmt: skip


def events(page: Any) -> str:
    """The events that the address tells."""
    return parse_qs(urlsplit(page.url).query).get("events", ["k182"])[0]


def counter(page: Any, name: str) -> str:
    """The text of a counter."""
    return str(page.locator(f"[data-value='{name}']").inner_text())


def settle(page: Any, wanted: str) -> None:
    """Wait until these events have been played to their end."""
    page.wait_for_function("text => document.querySelector('.events code')?.textContent === text", arg=wanted)
    page.wait_for_function(
        "() => (([a, b]) => a === b)(document.querySelector('.count').textContent.split(' / '))"
    )


def check(page: Any, wanted: str) -> None:
    """Compare counters and bins with what the rings themselves say."""
    settle(page, wanted)
    names: dict[str, Any] = {}
    text = replay(**DEFAULTS, events=wanted)["python"].replace("    print(policy, ring.loads())\n", "")
    exec(text, names)
    for policy, box in (("clockwise", 0), ("jump", 1)):
        ring: HashRing = names["rings"][policy]
        stats = ring.stats()
        serving = [load for name, load in ring.loads().items() if ring.states[name] == "up"]
        assert counter(page, f"{policy}-keys") == str(sum(serving))
        assert counter(page, f"{policy}-full") == f"{round(stats.full * stats.serving)} of {stats.serving}"
        assert abs(float(counter(page, f"{policy}-variance")) - stats.variance) < 0.01
        assert abs(float(counter(page, f"{policy}-next")) - stats.searches) < 0.01
        shown = page.locator(".circle").nth(box).locator(".server")
        labels = shown.evaluate_all("all => all.map(each => each.getAttribute('aria-label'))")
        found = {
            int(match[1]): int(match[2])
            for label in labels
            if (match := re.match(r"server (\d+): (\d+) of", label))
        }
        assert found == {int(name[1:]): load for name, load in ring.loads().items()}


def pick(page: Any, server: int, action: str, circle: int = 0) -> None:
    """Click a server, and an entry of its menu."""
    page.locator(".circle").nth(circle).locator(f"[data-server='{server}'] .bin").click()
    page.get_by_role("menuitem", name=action).click()


def test_servers_are_killed_drained_added_and_brought_up_by_clicks(page: Any) -> None:
    page.open("/rings")
    check(page, "k182")
    assert page.locator(".circle").nth(0).locator(".hop").count() >= 3  # the cascade: a chain of full servers
    pick(page, 13, "Kill")
    check(page, "k182.x13")
    assert page.locator(".circle").nth(0).locator(".server.down").count() == 1
    assert (
        page.locator(".circle").nth(1).locator(".move").count()
        > page.locator(".circle").nth(0).locator(".move").count()
    )
    assert counter(page, "jump-moved") == "9"
    pick(page, 5, "Drain", circle=1)
    check(page, "k182.x13.d5")
    page.get_by_role("button", name="Add a server").click()
    check(page, "k182.x13.d5.a")
    assert page.locator(".circle").nth(0).locator(".server").count() == 21
    pick(page, 13, "Bring up")
    check(page, "k182.x13.d5.a.u13")
    pick(page, 2, "Remove")
    page.get_by_role("button", name="Add 10 keys").click()
    check(page, "k182.x13.d5.a.u13.r2.k10")
    page.go_back()
    check(page, "k182.x13.d5.a.u13.r2")


def test_the_keyboard_alone_is_enough(page: Any) -> None:
    page.open("/rings")
    settle(page, "k182")
    first = page.locator(".circle").nth(0).locator(".server[tabindex='0']")
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    server = page.evaluate("document.activeElement.dataset.server")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "Killmark_down"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.server") == server
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")  # Drain
    page.keyboard.press("Enter")
    check(page, f"k182.d{server}")
    page.get_by_label("Keys and changes").get_by_role("slider").focus()
    page.keyboard.press("Home")
    assert "No key has arrived yet" in page.locator(".caption").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator(".caption").inner_text().startswith("Key 0.")


def test_what_is_done_in_the_middle_happens_there(page: Any) -> None:
    page.open("/rings?at=40")
    page.wait_for_function("() => document.querySelector('.count')?.textContent === '40 / 182'")
    assert counter(page, "jump-keys") == "40"
    pick(page, 4, "Kill")
    check(page, "k40.x4")


def test_play_and_pause(browser: Any, lab: str) -> None:
    from lab_browser import open_page

    context, page, watch = open_page(browser, lab, reduced_motion="no-preference")
    page.open("/rings?events=k60&at=0")
    page.wait_for_function("() => document.querySelector('.count')?.textContent === '0 / 60'")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => parseInt(document.querySelector('.count').textContent) > 2")
    page.get_by_role("button", name="Pause").click()
    at = page.locator(".count").inner_text()
    page.wait_for_timeout(250)
    assert page.locator(".count").inner_text() == at
    page.get_by_role("button", name="One step", exact=True).click()
    page.get_by_role("button", name="One step back").click()
    assert page.locator(".count").inner_text() == at
    page.wait_for_function("() => new URL(location).searchParams.get('at') !== '0'")
    context.close()
    watch.check()


def test_controls_change_the_rings_and_the_address_tells(page: Any) -> None:
    page.open("/rings")
    settle(page, "k182")
    page.get_by_text("of keys there are").click()
    page.wait_for_function("() => new URL(location).searchParams.get('bound') === 'growing'")
    growing = replay(**DEFAULTS | {"bound": "growing"}, events="k182")
    page.wait_for_function(
        "wanted => document.querySelector(\"[data-value='clockwise-full']\").textContent === wanted",
        arg=f"{growing['steps'][-1]['clockwise']['full']} of 20",
    )
    full = counter(page, "clockwise-full")
    page.reload()
    settle(page, "k182")
    assert counter(page, "clockwise-full") == full
    assert page.get_by_label("of keys there are").is_checked()


def test_predictions_stand_beside_the_counters(page: Any) -> None:
    page.open("/rings")
    settle(page, "k182")
    page.wait_for_function(
        "() => document.querySelector(\"[data-value='clockwise-full-predicted']\").textContent !== '–'"
    )
    assert 8 < float(counter(page, "clockwise-full-predicted")) < 13
    assert 1 < float(counter(page, "jump-full-predicted")) < 5
    assert page.locator(".plot .outline").count() == 2


def test_wrong_events_are_answered_in_words(page: Any) -> None:
    page.watch.allowed = ("400 (Bad Request)",)
    page.open("/rings?events=k10.x99")
    notice = page.get_by_role("alert").filter(has_text="names server 99")
    notice.wait_for()
    page.get_by_role("button", name="Start empty").click()
    page.wait_for_function("() => document.querySelector('.count').textContent === '0 / 0'")
    page.get_by_role("button", name="Add 1 key", exact=True).click()
    check(page, "k1")
    assert not notice.is_visible()


def test_a_phone_shows_one_circle_below_the_other(phone: Any) -> None:
    phone.open("/rings?events=k182.x13")
    settle(phone, "k182.x13")
    assert not phone.scrolls_sideways()
    first, second = (phone.locator(".circle").nth(i).bounding_box() for i in (0, 1))
    assert second["y"] > first["y"] + first["height"]
    pick(phone, 9, "Drain", circle=1)
    settle(phone, "k182.x13.d9")
    assert not phone.scrolls_sideways()
