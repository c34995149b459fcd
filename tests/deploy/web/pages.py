"""What tests do in the pages: write into the form, and draw on the map."""

from __future__ import annotations

import json

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def fill(browser, values):
    script = "for (const [name, value] of Object.entries(JSON.parse(arguments[0]))) document.getElementById('form').elements.namedItem(name).value = value"
    browser.run(script, json.dumps(values))


def publish(kafka, topics, id, text, lat=43.05, lon=-87.9):
    kafka.broker.write(topics.messages, None, json.dumps({"id": id, "text": text, "lat": lat, "lon": lon}).encode())


def type_into(browser, name, text):
    script = "const f = document.getElementById('form').elements.namedItem(arguments[0]); f.value = arguments[1]; f.dispatchEvent(new Event('input', {bubbles: true}))"
    browser.run(script, name, text)


def choose(browser, name, value):
    script = "const f = document.getElementById('form').elements.namedItem(arguments[0]); f.value = arguments[1]; for (const e of ['input', 'change']) f.dispatchEvent(new Event(e, {bubbles: true}))"
    browser.run(script, name, value)


def draw(browser, *points, clicks=False):
    """Press at the first of some points of the map, given as shares of its width and height, move over the others, and release; or click each of them."""
    script = """
        const [points, clicks] = arguments, box = document.getElementById('map').getBoundingClientRect();
        points.forEach(([x, y], i) => {
          const at = { bubbles: true, cancelable: true, isPrimary: true, button: 0, clientX: box.left + x * box.width, clientY: box.top + y * box.height };
          const events = [...(i && !clicks ? [] : ["pointerdown"]), "pointermove", ...(i < points.length - 1 && !clicks ? [] : ["pointerup"])];
          for (const name of events) document.getElementById('map').dispatchEvent(new PointerEvent(name, at));
        });
    """
    browser.run(script, points, clicks)


def take(browser, tool):
    """Take a tool with the mouse."""
    browser.click(f"//div[@id='tools']/button[@data-tool='{tool}']")


def value(browser, name):
    """Return what a field of the form holds."""
    return browser.run("return document.getElementById('form').elements.namedItem(arguments[0]).value", name)


def key(browser, name, selector="body"):
    """Press a key."""
    browser.run(
        "document.querySelector(arguments[0]).dispatchEvent(new KeyboardEvent('keydown', {key: arguments[1], bubbles: true, cancelable: true}))", selector, name
    )


def put(browser, tool):
    """Let the keyboard put a shape into the middle of the map."""
    browser.run("document.querySelector(`#tools [data-tool=${arguments[0]}]`).click()", tool)


def violations(browser, axe):
    """Return what axe-core finds wrong on the page that is shown."""
    browser.run(axe)
    script = """
        const found = await axe.run(document, { runOnly: arguments[0] });
        return JSON.stringify(found.violations.map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map(({ html }) => html.slice(0, 200))]));
    """
    return json.loads(browser.run(f"return (async (...given) => {{ {script.replace('arguments', 'given')} }})(...arguments)", RULES))
