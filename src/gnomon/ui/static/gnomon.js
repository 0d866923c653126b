// Makes the pages live and quicker to use; without it everything works, too.

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

// ---- parts that are shown again --------------------------------------------------------------------

const stale = new Set();
let timer = 0;
let last = 0;

const parts = () => $$("[data-part]");
const topicsOf = (part) => (part.dataset.topics ?? "").split(" ").filter(Boolean);
const concerns = (part, topics) =>
  topicsOf(part).some((topic) => topics.has(topic) || (topic.includes(":") && topics.has(`${topic.split(":")[0]}:*`)));

function markStale(topics) {
  for (const part of parts()) if (!topics || concerns(part, topics)) stale.add(part.dataset.part);
  refreshSoon();
}

function refreshSoon() {
  if (timer || !stale.size || document.hidden) return;
  timer = setTimeout(refresh, Math.max(0, last + PAUSE - Date.now()));
}

async function refresh() {
  last = Date.now();
  const names = [...stale];
  stale.clear();
  for (const name of names) {
    try {
      await load(name, location.href);
    } catch {
      stale.add(name);
      break;
    }
  }
  last = Date.now();
  timer = 0;
  if (!lost) refreshSoon();
}

async function load(name, address) {
  const url = new URL(address);
  url.searchParams.set("part", name);
  const answer = await fetch(url, { redirect: "manual" });
  if (answer.type === "opaqueredirect") return signedOut();
  const part = $(`[data-part="${CSS.escape(name)}"]`);
  if (answer.ok && part) show(part, await answer.text());
}

function show(part, html) {
  const wanted = document.createElement("template");
  wanted.innerHTML = html;
  const following = $$("[data-follow]", part).filter((box) => box.scrollHeight - box.scrollTop - box.clientHeight < 8);
  merge(part, wanted.content);
  for (const box of following) box.scrollTop = box.scrollHeight;
  tick();
}

const keyOf = (node) =>
  node.nodeType === Node.ELEMENT_NODE
    ? node.id || node.dataset.key || (node.nodeName === "TR" && $("a[href]", node)?.getAttribute("href")) || ""
    : "";
const alike = (one, other) => one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

// Changes the old node into the new one, and keeps every node that stays: with focus, selection, scroll and text.
function merge(old, wanted) {
  const keyed = new Map();
  for (const node of old.childNodes) if (keyOf(node) && !keyed.has(keyOf(node))) keyed.set(keyOf(node), node);
  const kept = new Set([...wanted.childNodes].map(keyOf).filter(Boolean));
  let at = old.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = keyOf(next);
    while (at && keyOf(at) && !kept.has(keyOf(at))) at = drop(at);
    let match = key ? keyed.get(key) : at;
    keyed.delete(key);
    if (!match || match.parentNode !== old || !alike(match, next)) {
      old.insertBefore(next, at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    update(match, next);
  }
  while (at) at = drop(at);
}

function drop(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function update(old, wanted) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
    return;
  }
  const typed = old.matches("input, textarea, select");
  if (typed && (old === document.activeElement || changed(old))) return;
  for (const { name } of [...old.attributes])
    if (!wanted.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  for (const { name, value } of wanted.attributes)
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  if (old.nodeName === "TEXTAREA") old.value = wanted.value;
  else merge(old, wanted);
}

const changed = (field) =>
  field.nodeName === "SELECT"
    ? [...field.options].some((option) => option.selected !== option.defaultSelected)
    : field.type === "checkbox" || field.type === "radio"
      ? field.checked !== field.defaultChecked
      : field.value !== field.defaultValue;

// ---- one stream for all tabs of this browser -------------------------------------------------------

const channel = new BroadcastChannel("gnomon");
let release = null;
let leads = false;
let lost = "";
let ended = false;
let heard = "";

// Whether something has changed between the making of this page and this message of the stream.
function older(message) {
  const [count, number] = (document.body.dataset.seen ?? "").split(".");
  const [theirs, newest] = message.split(".");
  return count !== theirs || Number(newest) > Number(number);
}

const clock = () => new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

function tell(text, state) {
  const line = $("#live");
  if (!line || line.dataset.state + line.textContent === state + text) return;
  line.dataset.state = state;
  line.textContent = text;
}

function signedOut() {
  ended = true;
  release?.();
  tell("Signed out: load the page again", "lost");
}

function hear({ topics, state, since, seen }) {
  if (ended) return;
  if (state === "ended") return signedOut();
  if (state === "lost") {
    lost = since;
    tell(`Connection lost since ${since}, retrying`, "lost");
  } else if (state === "live") {
    if (lost || older(seen)) markStale();
    lost = "";
    tell("Live", "live");
  }
  if (topics) markStale(new Set(topics));
  if (seen) heard = document.body.dataset.seen = seen;
}

channel.onmessage = ({ data }) => {
  if (data.ask) {
    if (leads && (lost || heard)) channel.postMessage(lost ? { state: "lost", since: lost } : { state: "live", seen: heard });
  } else hear(data);
};

function everyone(message) {
  hear(message);
  channel.postMessage(message);
}

// The leader of all tabs has the stream. It leads until it is hidden or closed; then another one does.
function lead() {
  if (release || document.hidden || ended || !parts().length) return;
  channel.postMessage({ ask: true });
  const wish = new AbortController();
  release = () => {
    wish.abort();
    release = null;
    leads = false;
  };
  const led = () => new Promise((done) => follow(wish.signal, done));
  if (!navigator.locks) led();
  else navigator.locks.request("gnomon", { signal: wish.signal }, led).catch(() => {});
}

function follow(signal, done) {
  let source;
  let again = 0;
  let failures = 0;
  leads = true;
  const open = () => {
    source = new EventSource("/ui/stream");
    source.addEventListener("listening", (event) => {
      failures = 0;
      everyone({ state: "live", seen: event.lastEventId });
    });
    source.addEventListener("stale", (event) => everyone({ topics: JSON.parse(event.data), seen: event.lastEventId }));
    source.addEventListener("end", () => {
      source.close();
      everyone({ state: "ended" });
    });
    source.onerror = () => {
      source.close();
      if (ended) return;
      if (!lost) everyone({ state: "lost", since: clock() });
      const pause = Math.min(LONGEST_PAUSE, PAUSE * 2 ** failures++) * (0.5 + Math.random() / 2);
      again = setTimeout(open, pause);
      if (failures === 1) for (const part of parts().slice(0, 1)) load(part.dataset.part, location.href).catch(() => {});
    };
  };
  signal.addEventListener("abort", () => {
    clearTimeout(again);
    source.close();
    done();
  });
  open();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    release?.();
    tell("Paused while hidden", "paused");
  } else if (!ended) {
    tell(lost ? `Connection lost since ${lost}, retrying` : "Live", lost ? "lost" : "live");
    markStale();
    lead();
  }
});
addEventListener("pagehide", () => release?.());
addEventListener("pageshow", (event) => {
  if (event.persisted) {
    markStale();
    lead();
  }
});

function every() {
  for (const part of parts()) {
    const seconds = Number(part.dataset.every);
    if (!seconds) continue;
    setInterval(() => {
      stale.add(part.dataset.part);
      refreshSoon();
    }, Math.max(PAUSE, seconds * 1000));
  }
}

// ---- forms -----------------------------------------------------------------------------------------

let typing = 0;

// A filter whose part is shown again while one types: <form data-filters="PART">.
async function filter(form) {
  const url = new URL(form.action || location.href);
  url.search = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, "", url);
  await load(form.dataset.filters, url.href).catch(() => {});
}

document.addEventListener("input", ({ target }) => {
  const form = target.closest?.("form[data-filters]");
  if (form) {
    clearTimeout(typing);
    typing = setTimeout(() => filter(form), 200);
  }
});

// <input type=checkbox data-select-all="NAME"> ticks the boxes of that name; <output data-ticked="NAME"> counts them.
const boxes = (name) => $$(`input[type="checkbox"][name="${CSS.escape(name)}"]`);
function tick() {
  for (const all of $$("[data-select-all]")) {
    const found = boxes(all.dataset.selectAll);
    const count = found.filter((box) => box.checked).length;
    all.hidden = !found.length;
    all.checked = count > 0 && count === found.length;
    all.indeterminate = count > 0 && count < found.length;
    for (const shown of $$(`[data-ticked="${CSS.escape(all.dataset.selectAll)}"]`)) shown.textContent = count;
  }
}

document.addEventListener("change", ({ target }) => {
  if (target.dataset?.selectAll) for (const box of boxes(target.dataset.selectAll)) box.checked = target.checked;
  if (target.type === "checkbox") tick();
});

// <button data-confirm="Delete 3 jobs?"> asks first. A form is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  const form = event.target;
  const button = event.submitter;
  if (form.method === "dialog") {
    if (button?.value === "yes") answered = Date.now();
    return;
  }
  if (form.dataset.sent) return event.preventDefault();
  const question = button?.dataset.confirm ?? form.dataset.confirm;
  if (question && !form.dataset.confirmed) {
    event.preventDefault();
    return ask(question, button?.textContent.trim(), () => {
      form.dataset.confirmed = "yes";
      form.requestSubmit(button);
    });
  }
  delete form.dataset.confirmed;
  if (form.method === "post") {
    form.dataset.sent = "yes";
    form.setAttribute("aria-busy", "true");
  }
});
addEventListener("pageshow", () => {
  for (const form of $$("form[data-sent]")) {
    delete form.dataset.sent;
    form.removeAttribute("aria-busy");
  }
});

function ask(question, verb, act) {
  const dialog = $("#confirm");
  const count = Object.fromEntries($$("[data-ticked]").map((shown) => [shown.dataset.ticked, shown.textContent]));
  $("p", dialog).textContent = question.replace(/\{(\w+)\}/g, (all, name) => count[name] ?? all);
  $("[value=yes]", dialog).textContent = verb || "Go on";
  dialog.returnValue = "";
  dialog.onclose = () => dialog.returnValue === "yes" && act();
  dialog.showModal();
}

// The second click of two is not for the page below the dialog.
let answered = 0;
addEventListener("click", (event) => {
  if (event.isTrusted && Date.now() < answered + 500) {
    event.preventDefault();
    event.stopPropagation();
  }
}, true);

// ---- palette and keys ------------------------------------------------------------------------------

const palette = $("#palette");
const field = palette && $("input", palette);
const found = palette && $("[data-found]", palette);
let asked = 0;

function jump() {
  if (!palette) return $("#jump")?.focus();
  if (!palette.open) palette.showModal();
  field.select();
  look();
}

async function look() {
  const mine = ++asked;
  const answer = await fetch(`/ui/search?part=found&q=${encodeURIComponent(field.value)}`, { redirect: "manual" }).catch(() => null);
  if (mine !== asked || !answer?.ok) return;
  const wanted = document.createElement("template");
  wanted.innerHTML = await answer.text();
  found.replaceChildren(wanted.content);
  choose(0);
}

const choices = () => $$("a[href]", found);
function choose(number) {
  const all = choices();
  all.forEach((link, index) => {
    const chosen = index === number;
    link.toggleAttribute("data-chosen", chosen);
    if (chosen) link.scrollIntoView({ block: "nearest" });
  });
}

field?.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(look, 120);
});
field?.addEventListener("keydown", (event) => {
  const all = choices();
  const now = all.findIndex((link) => link.hasAttribute("data-chosen"));
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    choose((now + (event.key === "ArrowDown" ? 1 : all.length - 1)) % (all.length || 1));
  } else if (event.key === "Enter" && now >= 0) {
    event.preventDefault();
    location.assign(all[now].href);
  }
});

const rows = () => $$("main tbody tr, main [data-row]").filter((row) => $("a[href]", row) && row.offsetParent);
function move(by) {
  const all = rows();
  const now = all.findIndex((row) => row.contains(document.activeElement));
  const row = all[now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + by))];
  if (row) $("a[href]", row).focus();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    return jump();
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog, [contenteditable]")) return;
  const act = { "/": jump, "?": () => $("#help")?.showModal(), j: () => move(1), k: () => move(-1) }[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

document.addEventListener("click", ({ target }) => {
  if (target.nodeName === "DIALOG") target.close();
  for (const menu of $$("details.drop[open]")) if (!menu.contains(target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && $("details.drop[open]");
  if (menu) {
    menu.open = false;
    $("summary", menu).focus();
  }
});
$("#jump")?.addEventListener("click", ({ target }) => target.value || jump());

// ---- the reader's own zone -------------------------------------------------------------------------

for (const choice of $$("[data-own-zone]")) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && !choice.value) choice.value = zone;
}

// A sign-in by code sends itself, but not while the browser only guesses that one will come here.
const signIn = $("form[data-submit]");
if (signIn && !document.prerendering && !document.hidden) signIn.requestSubmit();

tick();
every();
lead();
