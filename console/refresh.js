/* Shows the page again every two seconds while somebody looks at it. Without it every page works too. */
"use strict";
let timer = 0;
const SCROLLS = ".wide, pre";

function isBusy(main) {
  const focused = document.activeElement;
  return (focused && main.contains(focused) && /^(INPUT|BUTTON|PRE)$/.test(focused.tagName)) || !window.getSelection().isCollapsed;
}

function tell(text) {
  let place = document.getElementById("offline");
  if (!place && text) {
    place = document.createElement("p");
    place.id = "offline";
    place.className = "told bad";
    place.setAttribute("role", "alert");
    document.body.prepend(place);
  }
  if (place) {
    place.textContent = text;
    place.hidden = !text;
  }
}

/* What the reader has opened, scrolled and reached by the keyboard stays so. */
function replace(main, fresh) {
  const focused = main.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = [...main.querySelectorAll(SCROLLS)].map((part) => [part.scrollLeft, part.scrollTop]);
  for (const part of main.querySelectorAll("details[open][id]")) fresh.querySelector("#" + part.id)?.setAttribute("open", "");
  const told = fresh.querySelector("[role=status]") ? [] : [...main.querySelectorAll("[role=status]")];
  main.replaceChildren(...told, ...fresh.childNodes);
  main.dataset.refreshes = fresh.dataset.refreshes;
  [...main.querySelectorAll(SCROLLS)].forEach((part, n) => { if (scrolled[n]) [part.scrollLeft, part.scrollTop] = scrolled[n]; });
  if (focused?.tagName === "SUMMARY") main.querySelector("#" + focused.parentElement.id + " > summary")?.focus();
  if (focused?.tagName === "A") [...main.querySelectorAll("a")].find((link) => link.href === focused.href && link.textContent === focused.textContent)?.focus();
}

async function refresh() {
  const main = document.getElementById("main");
  if (document.hidden || main.dataset.refreshes !== "yes" || isBusy(main)) return;
  try {
    const answer = await fetch(location.href, { headers: { "X-Refresh": "1" }, redirect: "error", signal: AbortSignal.timeout(10000) });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    tell("");
    if (!fresh) location.reload(); /* the session has ended */
    else if (!isBusy(main)) replace(main, fresh);
  } catch {
    tell("The console does not answer; what you see is old.");
  }
}

function again() {
  clearTimeout(timer);
  timer = setTimeout(() => refresh().finally(again), 2000);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh().finally(again); });
again();
