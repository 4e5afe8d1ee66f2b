// Follows the page's stream of events and fetches the page anew when something has changed. Without this the page works, and stays as it is.
"use strict";
(() => {
  const address = document.body.dataset.live;
  const state = document.getElementById("live-state");

  function say(text, kind) {
    if (!state || state.textContent === text) return;
    state.textContent = text;
    state.dataset.kind = kind;
  }

  // What a user has opened, and where the focus is, stays.
  function replace(fresh) {
    const old = document.getElementById("live");
    const now = fresh.getElementById("live");
    if (!old || !now) return false;
    const open = [...old.querySelectorAll("details[open][id]")].map((d) => d.id);
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    old.replaceWith(now);
    open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    return true;
  }

  let asked = 0;
  async function refresh(url) {
    const mine = ++asked;
    let answer;
    try {
      answer = await fetch(url, { credentials: "same-origin", headers: { Accept: "text/html" } });
    } catch {
      return; // the stream will tell again when the connection is back
    }
    if (answer.redirected || answer.status === 401) {
      location.reload(); // not logged in any more
      return;
    }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (mine !== asked) return; // a newer one is on its way
    if (!answer.ok || !replace(fresh)) location.reload();
  }

  function here() {
    const url = new URL(location.href);
    url.searchParams.delete("done");
    return url;
  }

  if (address && window.EventSource) {
    let lost = false;
    let source;
    const connect = () => {
      source = new EventSource(address);
      source.addEventListener("begun", () => {
        say("Live", "on");
        if (lost) refresh(here());
        lost = false;
      });
      source.addEventListener("changed", () => refresh(here()));
      source.addEventListener("ended", () => { source.close(); location.reload(); });
      source.onerror = () => {
        lost = true;
        say("Not connected", "off");
        if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
        setTimeout(connect, 10000);
      };
    };
    connect();
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", (e) => { if (e.persisted) connect(); });
  }

  // Search as one types; the address follows, so that it can be shared.
  const form = document.querySelector("form.search");
  if (form) {
    let timer;
    const look = () => {
      const query = new URLSearchParams();
      for (const [key, value] of new FormData(form)) if (value) query.set(key, value);
      const url = "/?" + query;
      history.replaceState(null, "", url);
      refresh(url);
    };
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 250); });
    form.addEventListener("submit", (e) => { e.preventDefault(); clearTimeout(timer); look(); });
  }

  // Words such as "3 min ago" grow old.
  const span = (s) => {
    if (s < 60) return Math.floor(s) + " s";
    if (s < 3600) return Math.floor(s / 60) + " min";
    if (s < 36000 && Math.floor((s % 3600) / 60) > 0) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
    if (s < 172800) return Math.floor(s / 3600) + " h";
    return Math.floor(s / 86400) + " days";
  };
  setInterval(() => {
    for (const t of document.querySelectorAll("time[data-ago]")) {
      const s = (Date.now() - Date.parse(t.dateTime)) / 1000;
      t.textContent = s < 0 ? "in " + span(-s) : s < 10 ? "just now" : span(s) + " ago";
    }
  }, 15000);
})();
