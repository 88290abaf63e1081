// The page's frame: which view is shown, by the address's fragment, the token, and when to draw.

import {hrefOf, setAttribute, setHidden, setText} from "./dom.js";
import {Live} from "./live.js";
import {gangView, gangsView, nodesView, queuesView} from "./views.js";

const at = id => document.getElementById(id);
const VIEWS = {gangs: gangsView, gang: gangView, queues: queuesView, nodes: nodesView};

// "#/gangs?text=a", "#/gangs/NAMESPACE/NAME", "#/queues", "#/nodes"; null for what is no view.
function parse(fragment) {
  const [, path, query] = /^#\/([^?]*)(?:\?(.*))?$/.exec(fragment || "#/gangs") ?? [];
  if (path === undefined) return null;
  const parts = path.split("/").map(part => { try { return decodeURIComponent(part); } catch { return part; } });
  const name = parts[0] === "gangs" && parts.length === 3 ? "gang" : VIEWS[parts[0]] ? parts[0] : "gangs";
  return {name, namespace: parts[1], gang: parts[2], options: new URLSearchParams(query)};
}

let route = null, view = null, drawing = false;
const live = new Live(draw);

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    setText(at("link"), live.link.words);
    setAttribute(at("link"), "class", live.link.live ? "good" : "wait");
    setHidden(at("forget"), live.token === null);
    const asks = live.needsToken !== null;
    if (asks) setText(at("login-why"), live.needsToken);
    if (asks === at("login").hidden) {
      at("login").hidden = !asks;
      at("main").hidden = asks;
      if (asks) at("token").focus();
    }
    if (!asks) view?.update(Date.now());
  });
}

function go() {
  const next = parse(location.hash);
  if (next === null) return;
  const before = route;
  route = next;
  if (route.name === "gang") {
    if (live.namespace !== "" && live.namespace !== route.namespace) live.setNamespace("");
  } else if (route.name === "gangs") {
    live.setNamespace(route.options.get("namespace") ?? "");
  }
  const same = before !== null && before.name === route.name && route.name !== "gang";
  if (!same) {
    view = VIEWS[route.name](live, route, change);
    at("main").replaceChildren(view.node);
    document.querySelectorAll("nav a").forEach(link => {
      const current = link.hash === "#/" + (route.name === "gang" ? "gangs" : route.name);
      if (current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    });
    view.update(Date.now());
    // Where one came from, or the top of what is new.
    if (before !== null) {
      const from = before.name === "gang" && route.name === "gangs"
        ? at("main").querySelector(`a[href="${hrefOf(before.namespace, before.gang)}"]`) : null;
      (from ?? at("main").querySelector("h2"))?.focus();
      if (from === null) scrollTo(0, 0);
    }
  } else {
    view.move?.(route);
  }
  document.title = `${view.title} · Muster`;
  draw();
}
// What a view has chosen, kept in the address without another entry in the history.
function change(options) {
  const query = new URLSearchParams(Object.entries(options).filter(([, value]) => value)).toString();
  history.replaceState(null, "", `#/${route.name}${query ? "?" + query : ""}`);
  go();
}

addEventListener("hashchange", go);
document.querySelector(".skip").addEventListener("click", event => {
  event.preventDefault();
  at("main").focus();
});
at("login").addEventListener("submit", event => {
  event.preventDefault();
  live.setToken(at("token").value.trim());
  at("token").value = "";
});
at("forget").addEventListener("click", () => live.setToken(null));
// Times that grow by themselves.
setInterval(() => { if (!document.hidden) draw(); }, 1000);
go();
live.start();
