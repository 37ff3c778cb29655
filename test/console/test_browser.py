"""A person with a browser: symptoms of docs/operations.md are cured by clicks, and the pictures of docs/console.md are made on the way."""

import os

import pytest
from outbox_rig import wait_until
from outbox_rig.paths import ROOT
from outbox_rig.receiver import OK, status
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

MOST_CLICKS = 8
PICTURES = ROOT / "docs/console" if os.environ.get("PICTURES") else None


class Person:
    """Reads and clicks."""

    def __init__(self, driver: webdriver.Chrome, url: str):
        self.driver, self.clicks = driver, 0
        driver.get(url)

    @property
    def text(self) -> str:
        return self.driver.execute_script("return document.body.innerText")

    def sees(self, text: str, within: float = 30) -> None:
        wait_until(lambda: text in self.text, within, lambda: f'"{text}" in:\n{self.text}')

    def click(self, text: str) -> None:
        """A link or a button with this text. The page may be refreshed between looking and clicking."""
        self.clicks += 1
        assert self.clicks <= MOST_CLICKS
        path = f'//main//*[self::a or self::button][normalize-space()="{text}"] | //header//*[self::a or self::button][normalize-space()="{text}"]'

        def clicked() -> bool:
            try:
                self.driver.find_element(By.XPATH, path).click()
                return True
            except (NoSuchElementException, StaleElementReferenceException):
                return False

        wait_until(clicked, 30, lambda: f'a link or button "{text}" in:\n{self.text}')

    def picture(self, name: str) -> None:
        if PICTURES:
            PICTURES.mkdir(exist_ok=True)
            self.driver.save_screenshot(str(PICTURES / f"{name}.png"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,860", f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture
def person(driver, console):
    """Somebody who has opened the link. The policy of the pages was never hurt."""
    driver.get_log("browser")
    person = Person(driver, console().link)
    yield person
    driver.set_window_size(1280, 860)
    driver.get("about:blank")  # the page would go on asking, when the console has ended
    said = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE" and "favicon" not in entry["message"]]
    assert not said, said


def test_a_sink_was_paused_and_forgotten(person, db, receiver):
    db.webhook_sink("crm", receiver.url)
    db.sql("SELECT outbox.pause('crm')")
    db.enqueue("Order", "1")
    person.sees("paused")
    person.click("crm")
    person.click("Resume")
    person.sees("The sink is resumed")
    wait_until(receiver.accepted, what="the delivery")


def test_an_endpoint_was_gone_for_a_while(person, db, receiver):
    receiver.mode = status(410)
    db.webhook_sink("crm", receiver.url)
    db.enqueue("Order", "1")
    person.sees("disabled: 410")
    receiver.mode = OK
    person.click("crm")
    person.click("Resume")
    wait_until(receiver.accepted, what="the delivery")


def test_an_endpoint_has_asked_for_an_hour(person, db, receiver):
    receiver.mode = status(503, retry_after=3600)
    db.webhook_sink("crm", receiver.url, max_pause="1h")
    db.enqueue("Order", "1")
    person.sees("paused by endpoint")
    receiver.mode = OK
    person.click("crm")
    person.click("Resume")
    wait_until(receiver.accepted, what="the delivery")


def test_a_consumer_has_refused_events_until_it_was_repaired(person, db, receiver):
    receiver.mode = lambda delivery: status(400, body=b"unknown field total") if b"order.paid" in delivery.body else OK
    db.webhook_sink("crm", receiver.url, max_attempts="1")
    for key in range(8):  # ten refused keys in a row would open the circuit
        db.enqueue("Order", f"{key}", "order.paid")
        db.enqueue("Order", f"other {key}")  # the endpoint works, so the refusals are the events' fault
    wait_until(lambda: db.value("SELECT dead FROM outbox.sinks") == 8, what="the dead letters")
    person.sees("400")
    person.picture("now")
    receiver.mode = OK
    person.click("crm")
    person.sees("Dead letters, by error")
    person.picture("sink")
    person.click("redrive or discard")
    person.sees("8 of the last")
    person.click("Redrive")
    person.sees("8 of 8 dead letters are sent again")
    wait_until(lambda: len(receiver.accepted()) == 16, what="the deliveries")


def test_a_key_is_blocked_by_an_event_that_nobody_wants(person, db, receiver):
    receiver.mode = lambda delivery: status(400, body=b"no such order") if b"broken" in delivery.body else OK
    db.webhook_sink("crm", receiver.url, max_attempts="1", on_dead_letter="block")
    db.enqueue("Order", "1", "order.broken", payload='{"a": "broken"}')
    wait_until(lambda: db.value("SELECT dead FROM outbox.sinks") == 1, what="the dead letter")
    blocked = db.enqueue("Order", "1", "order.paid")
    wait_until(lambda: db.value("SELECT blocked FROM outbox.sinks") == 1, what="the block")
    person.click("Events")
    person.click("Order: order.paid")
    person.sees("It waits for")
    person.click("order.broken")
    person.sees("no such order")
    person.picture("event")
    person.click("Discard")
    person.sees("is deleted")
    wait_until(lambda: blocked in [delivery.id for delivery in receiver.accepted()] or not db.pending(), what="the event behind it")


def test_a_consumer_has_lost_an_event(person, db, receiver):
    db.webhook_sink("crm", receiver.url)
    event = db.enqueue("Order", "1")
    db.wait_empty()
    person.driver.get(f"{person.driver.current_url.split('/enter')[0].rstrip('/')}/event?id={event}")
    person.sees("delivered")
    person.click("Send again to crm")
    wait_until(lambda: [delivery.id for delivery in receiver.accepted()].count(event) == 2, what="the second delivery")


def test_the_page_refreshes_by_itself_and_rests_when_hidden(person, db, receiver):
    db.webhook_sink("crm", receiver.url)
    person.sees("crm")
    query = "SELECT state_change FROM pg_stat_activity WHERE application_name = 'outbox-console'"
    before = db.value(query)
    wait_until(lambda: db.value(query) != before, 10, "a refresh")
    person.driver.switch_to.new_window("tab")  # the first one is hidden now
    hidden = db.value(query)
    import time
    time.sleep(8)
    assert (db.value(query) - hidden).total_seconds() < 5  # one may have been under way
    person.driver.close()
    person.driver.switch_to.window(person.driver.window_handles[0])
    wait_until(lambda: (db.value(query) - hidden).total_seconds() > 8, 20, "a refresh when it is seen again")


def test_a_thousand_sinks_and_long_names_on_a_telephone(person, db, receiver):
    db.sql("SELECT outbox_internal.library()")
    long = "a_name_of_sixty_three_bytes_which_no_screen_of_a_telephone_shows"[:63]
    db.webhook_sink(long, receiver.url)
    for n in range(300):
        db.sql(f"CREATE SERVER s{n} FOREIGN DATA WRAPPER outbox_webhook OPTIONS (url 'https://hooks.example/{n}', events 'none')")
    person.driver.set_window_size(390, 844)
    person.driver.refresh()
    person.sees("301 sinks")
    width = person.driver.execute_script("return document.documentElement.scrollWidth")
    assert width <= person.driver.execute_script("return document.documentElement.clientWidth"), "the page scrolls sideways"


def test_everything_can_be_reached_by_the_keyboard(person, db, receiver):
    from selenium.webdriver.common.keys import Keys
    db.webhook_sink("crm", receiver.url)
    person.sees("crm")
    reached = set()
    body = person.driver.find_element(By.TAG_NAME, "body")
    for _ in range(25):
        person.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(person.driver.switch_to.active_element.text or person.driver.switch_to.active_element.tag_name)
    assert {"Now", "Events", "Doctor", "Log out", "crm"} <= reached, (reached, body.text)
