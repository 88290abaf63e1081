// What is shown of gangs, one gang, queues and nodes. A view is {title, node, update(now), move?(route)}:
// made once, and then told to look at what is known again.

import {age, amount, clock, element, hrefOf, isDevice, keyOf, keyed, pill, row, setAttribute, setHidden, setText, shape, table, time, words} from "./dom.js";
import {line} from "./live.js";
import {nodeLabel, timeline} from "./timeline.js";

const SHOWN = 200;  // rows, until somebody asks for more
// What needs somebody first.
const ORDER = ["INFEASIBLE", "BACKING_OFF", "REPAIRING", "WAITING_FOR_MEMBERS", "WAITING_FOR_QUOTA", "PROVISIONING", "READY", "BINDING", "BOUND", "FINISHED"];
const RUNS = new Set(["BOUND", "FINISHED"]);

const heading = text => element("h2", {tabindex: "-1"}, text);
const boundOf = gang => gang.members.filter(member => member.node !== "").length;

function ordinal(n) {
  const ending = n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th";
  return `${n}${ending}`;
}
const placeText = place => place ? `${ordinal(place.place)} of ${place.of} in ${place.queue}` : "";

// Until when its state lasts at most, if it is known.
function until(gang, now) {
  if (gang.state === "PROVISIONING" && gang.deadline) return `deadline in ${age(time(gang.deadline) - now)}`;
  if (gang.state === "BACKING_OFF" && gang.retryAt) return `next attempt in ${age(time(gang.retryAt) - now)}`;
  return "";
}

// "3 of 4" with a bar.
function progress() {
  const bar = shape("rect", {height: 6, rx: 2, class: "filled"});
  const label = element("span");
  const node = element("span", {class: "progress"},
    shape("svg", {width: 60, height: 6, "aria-hidden": "true"}, shape("rect", {width: 60, height: 6, rx: 2, class: "empty"}), bar), label);
  return {node, update(have, want, text) {
    setAttribute(bar, "width", String(want > 0 ? Math.min(60, 60 * have / want) : 0));
    setText(label, text);
  }};
}

function why() {
  const message = element("p", {class: "message"});
  const fix = element("p", {class: "fix"});
  const node = element("div", {}, message, fix);
  return {node, update(reason) {
    setText(message, reason?.message ?? "");
    setText(fix, reason?.fix ? "→ " + reason.fix : "");
    setHidden(fix, !reason?.fix);
  }};
}

// ---- gangs ----

function gangRow(context) {
  return () => {
    const link = element("a");
    const namespace = element("span", {class: "dim"});
    const state = pill(), since = element("div", {class: "dim small"});
    const members = progress();
    const queue = element("div"), place = element("div", {class: "dim small"});
    const reason = why();
    const node = element("tr", {},
      element("th", {scope: "row"}, link, element("br"), namespace),
      element("td", {class: "still"}, state.node, since),
      element("td", {class: "still"}, members.node),
      element("td", {}, queue, place),
      element("td", {class: "wide"}, reason.node));
    return {node, update(gang) {
      setAttribute(link, "href", hrefOf(gang.namespace, gang.name));
      setText(link, gang.name);
      setText(namespace, gang.namespace);
      state.update(gang.state);
      const more = until(gang, context.now);
      setText(since, `for ${age(context.now - time(gang.stateSince))}${more ? ", " + more : ""}`);
      members.update(boundOf(gang), Number(gang.minMember), `${boundOf(gang)} of ${gang.minMember} bound`);
      setText(queue, gang.queue);
      setText(place, placeText(context.places.get(keyOf(gang))));
      reason.update(gang.reason);
    }};
  };
}

export function gangsView(live, route, change) {
  live.want("queues");
  const text = element("input", {type: "search", id: "filter-text", autocomplete: "off", spellcheck: "false"});
  const namespace = element("input", {id: "filter-namespace", list: "namespaces", autocomplete: "off", spellcheck: "false", placeholder: "all"});
  const known = element("datalist", {id: "namespaces"});
  const states = element("p", {class: "buttons", role: "group", "aria-label": "State"});
  const nothing = element("p", {class: "dim"});
  const rows = table("Gangs", ["Gang", "State", "Members", "Queue", "Why"], {class: "gangs"});
  const more = element("button", {type: "button"});
  const node = element("div", {}, heading("Gangs"),
    element("div", {class: "filters"},
      element("p", {}, element("label", {for: "filter-text"}, "Filter"), text),
      element("p", {}, element("label", {for: "filter-namespace"}, "Namespace"), namespace, known)),
    states, nothing, rows.node, element("p", {}, more));
  let options = {}, shown = SHOWN;
  const seen = new Set();
  const context = {now: 0, places: new Map()};
  const make = gangRow(context);

  const set = more_options => {
    shown = SHOWN;
    change({...options, ...more_options});
  };
  text.addEventListener("input", () => set({text: text.value}));
  namespace.addEventListener("change", () => set({namespace: namespace.value.trim()}));
  more.addEventListener("click", () => { shown += SHOWN; update(context.now); });

  const move = next => {
    options = Object.fromEntries(next.options);
    for (const [input, value] of [[text, options.text ?? ""], [namespace, options.namespace ?? ""]]) {
      if (input.value !== value && input !== document.activeElement) input.value = value;
    }
  };

  function update(now) {
    context.now = now;
    context.places = line(live.queues);
    const wanted = (options.text ?? "").toLowerCase();
    const found = [...live.gangs.values()].filter(gang => wanted === ""
      || [keyOf(gang), gang.queue, gang.reason?.code, gang.reason?.message].some(each => (each ?? "").toLowerCase().includes(wanted)));
    for (const gang of found) seen.add(gang.namespace);
    keyed(known, [...seen].sort(), each => each, each => ({node: element("option", {value: each})}));
    const counts = new Map();
    for (const gang of found) counts.set(gang.state, (counts.get(gang.state) ?? 0) + 1);
    const chosen = options.state ?? "";
    const choices = [["", found.length], ...ORDER.filter(state => counts.has(state) || state === chosen).map(state => [state, counts.get(state) ?? 0])];
    keyed(states, choices, ([state]) => state, ([state]) => {
      const button = element("button", {type: "button"});
      button.addEventListener("click", () => set({state: options.state === state ? "" : state}));
      return {node: button, update([, count]) {
        setText(button, `${state === "" ? "all" : words(state)} ${count}`);
        setAttribute(button, "aria-pressed", String((options.state ?? "") === state));
      }};
    });
    const right = found.filter(gang => chosen === "" || gang.state === chosen);
    const rank = gang => ORDER.indexOf(gang.state);
    right.sort((a, b) => rank(a) - rank(b) || (time(a.stateSince) ?? 0) - (time(b.stateSince) ?? 0) || keyOf(a).localeCompare(keyOf(b)));
    keyed(rows.body, right.slice(0, shown), keyOf, make);
    setHidden(rows.node, right.length === 0);
    setHidden(nothing, right.length > 0);
    setText(nothing, live.refused.gangs ? `${live.refused.gangs}. Say which namespace is yours.`
      : !live.known && live.gangs.size === 0 ? "Nothing is known yet." : live.gangs.size > 0 ? "No gang is like that." : "There are no gangs.");
    setHidden(more, right.length <= shown);
    setText(more, `Show more of ${right.length}`);
  }
  move(route);
  return {title: "Gangs", node, update, move};
}

// ---- one gang ----

function facts() {
  const node = element("dl");
  return {node, update(pairs) {
    keyed(node, pairs.filter(([, value]) => value !== "" && value !== null), ([name]) => name, ([name]) => {
      const value = element("dd");
      return {node: element("div", {}, element("dt", {}, name), value), update([, text]) { setText(value, text); }};
    });
  }};
}

function plainTable(caption, titles, keyOfItem, texts) {
  const list = table(caption, titles);
  const section = element("section", {}, element("h3", {}, caption), list.node);
  return {node: section, update(items) {
    setHidden(section, items.length === 0);
    keyed(list.body, items, keyOfItem, () => {
      const cells = titles.map((_, i) => element(i === 0 ? "th" : "td", i === 0 ? {scope: "row"} : {}));
      const state = titles.indexOf("State") >= 0 ? titles.indexOf("State") : titles.indexOf("Stage");
      const mark = state < 0 ? null : pill();
      if (mark) cells[state].append(mark.node);
      return {node: row(cells), update(item) {
        texts(item).forEach((text, i) => i === state ? mark.update(text) : setText(cells[i], text));
      }};
    });
  }};
}

export function gangView(live, route) {
  live.want("queues");
  const key = `${route.namespace}/${route.gang}`;
  const back = element("a", {href: "#/gangs"}, "All gangs");
  const state = pill();
  const since = element("span", {class: "dim"});
  // Told to those who don't see it, when it changes.
  const news = element("p", {class: "unseen", role: "status"});
  const reason = why();
  const code = element("p", {class: "dim small"});
  const known = facts();
  const picture = timeline();
  const setbacks = plainTable("Setbacks", ["What", "Node", "Where", "Times", "When", "In their words"], each => each.code + each.nodeClaim + each.zone + each.message,
    each => [words(each.code) + (each.overcome ? ", overcome" : ""), each.node || each.nodeClaim, [each.instanceType, each.zone, each.nodePool].filter(Boolean).join(", "),
      each.times, clock(time(each.last)), each.message]);
  const members = plainTable("Members", ["Pod", "State", "Node", "Notes"], each => each.uid || each.name,
    each => [each.name, each.state, each.node || (each.plannedNode ? "expected: " + each.plannedNode : ""), each.message + (each.surplus ? " (beyond minMember)" : "")]);
  const nodes = plainTable("Nodes", ["Node", "Stage", "Type", "Zone", "Held until", "Notes"], each => each.nodeClaim || each.name,
    each => [nodeLabel(each), each.stage, each.instanceType, each.zone, clock(time(Object.values(each.holds).sort().at(-1) ?? null)),
      [each.message, each.suspect ? "suspect: " + each.suspectReason : ""].filter(Boolean).join("; ")]);
  const pools = plainTable("What NodePools can do for it", ["NodePool", "Pods", "What rules it out", "Fix"], each => each.nodePool,
    each => [each.nodePool, each.pods, each.message, each.fix]);
  const gone = element("p", {class: "dim"});
  const body = element("div", {}, element("p", {class: "state"}, state.node, since), element("div", {class: "card why"}, reason.node, code), known.node,
    element("section", {}, element("h3", {}, "Its story"), picture.node), setbacks.node, members.node, nodes.node, pools.node);
  const node = element("div", {}, element("p", {class: "back"}, back), heading(key), news, gone, body);
  let last = null;

  return {title: key, node, update(now) {
    const gang = live.gangs.get(key);
    setHidden(body, gang === undefined);
    setHidden(gone, gang !== undefined);
    if (gang === undefined) {
      setText(gone, live.refused.gangs ?? (live.known ? `There is no gang ${key}, or it is gone.` : "Nothing is known yet."));
      return;
    }
    if (last !== null && last !== gang.state) setText(news, `${gang.name} is ${words(gang.state)}: ${gang.reason?.message ?? ""}`);
    last = gang.state;
    state.update(gang.state);
    const more = until(gang, now);
    setText(since, ` for ${age(now - time(gang.stateSince))}, since ${clock(time(gang.stateSince))}${more ? "; " + more : ""}`);
    reason.update(gang.reason);
    setText(code, `reason ${gang.reason?.code ?? ""}`);
    const place = line(live.queues).get(key);
    known.update([
      ["Members", `${boundOf(gang)} of ${gang.minMember} bound, ${gang.members.length} exist`],
      ["Nodes", gang.nodes.length === 0 ? "" : `${gang.nodes.filter(each => each.stage === "USABLE").length} of ${gang.nodes.length} usable`],
      ["Queue", gang.queue + (gang.clusterQueue && gang.clusterQueue !== gang.queue ? ` (${gang.clusterQueue})` : "")],
      ["Place in line", placeText(place)],
      ["Flavors", gang.flavors.join(", ")],
      ["Priority", gang.priority ? String(gang.priority) : ""],
      ["Attempt", gang.attempt > 1 ? String(gang.attempt) : ""],
      ["Nodes kept for it", gang.reservation ? `${gang.reservation.nodes.length}, ${gang.reservation.idleGpus} GPUs idle` : ""],
    ]);
    picture.update(gang, now);
    setbacks.update(gang.setbacks);
    members.update(gang.members);
    nodes.update(gang.nodes);
    pools.update(RUNS.has(gang.state) ? [] : gang.feasibility?.nodePools ?? []);
  }};
}

// ---- queues ----

const byDevice = (a, b) => isDevice(b.resource) - isDevice(a.resource) || a.flavor.localeCompare(b.flavor) || a.resource.localeCompare(b.resource);

// Nominal, used, borrowed beyond it, and what others of the cohort may be using of it.
function quotaBar() {
  const WIDTH = 320;
  const rect = kind => shape("rect", {y: 1, height: 12, class: kind});
  const nominal = rect("empty"), used = rect("filled"), lent = rect("lent"), borrowed = rect("borrowed");
  const edge = shape("line", {y1: 0, y2: 14, class: "edge"});
  const label = element("th", {scope: "row"}), text = element("td");
  const picture = shape("svg", {viewBox: `0 0 ${WIDTH} 14`, class: "bar", "aria-hidden": "true", preserveAspectRatio: "none"}, nominal, lent, used, borrowed, edge);
  const node = element("tr", {}, label, element("td", {class: "bar"}, picture), text);
  return {node, update(usage) {
    const {flavor, resource} = usage;
    const [of, taken, beyond, away] = [usage.nominal, usage.reserved, usage.borrowed, usage.lent].map(Number);
    const scale = WIDTH / Math.max(of, taken, 1);
    const span = (shape_, from, to) => { setAttribute(shape_, "x", String(from * scale)); setAttribute(shape_, "width", String(Math.max(0, to - from) * scale)); };
    span(nominal, 0, of);
    span(used, 0, taken - beyond);
    span(lent, of - away, of);
    span(borrowed, taken - beyond, taken);
    setAttribute(edge, "x1", String(of * scale));
    setAttribute(edge, "x2", String(of * scale));
    setText(label, `${resource} in ${flavor}`);
    setText(text, `${amount(resource, taken)} of ${amount(resource, of)} used`
      + (beyond > 0 ? `, ${amount(resource, beyond)} of it borrowed` : "") + (away > 0 ? `, up to ${amount(resource, away)} lent` : ""));
  }};
}

function queueCard() {
  const title = element("h3"), error = element("p", {class: "bad"}), counts = element("p", {class: "dim"});
  const bars = element("tbody");
  const usage = element("table", {class: "quota"}, element("caption", {class: "unseen"}, "Quota"),
    element("thead", {class: "unseen"}, element("tr", {}, ...["Resource and flavor", "Picture", "Used"].map(each => element("th", {scope: "col"}, each)))), bars);
  const waiting = element("ol", {class: "line"}), waits = element("h4", {}, "Who waits, in order");
  const rest = element("p", {class: "dim"});
  const locals = element("p", {class: "dim"});
  const node = element("section", {class: "card"}, title, error, counts, usage, waits, waiting, rest, locals);
  return {node, update({queue, usages, localQueues}) {
    setText(title, queue.name);
    setText(error, queue.error);
    setHidden(error, queue.error === "");
    setText(counts, [`${queue.pending} waiting, ${queue.admitted} admitted`, queue.cohort ? `cohort ${queue.cohort}` : "no cohort",
      queue.fairShare !== "0" && queue.fairShare ? `fair share ${(Number(queue.fairShare) / 1000).toFixed(2)}` : ""].filter(Boolean).join("; "));
    keyed(bars, usages, each => `${each.flavor}/${each.resource}`, quotaBar);
    setHidden(waits, queue.pendingGangs.length === 0);
    setHidden(waiting, queue.pendingGangs.length === 0);
    keyed(waiting, queue.pendingGangs, keyOf, () => {
      const link = element("a"), priority = element("span", {class: "dim"}), reason = why();
      return {node: element("li", {}, link, priority, reason.node), update(gang) {
        setAttribute(link, "href", hrefOf(gang.namespace, gang.name));
        setText(link, keyOf(gang));
        setText(priority, gang.priority ? ` priority ${gang.priority}` : "");
        reason.update(gang.reason);
      }};
    });
    const hidden = Number(queue.pending) - queue.pendingGangs.length;
    setHidden(rest, hidden <= 0);
    setText(rest, `and ${hidden} more`);
    setHidden(locals, localQueues.length === 0);
    setText(locals, "Reached by " + localQueues.map(each => `${each.namespace}/${each.name} (${each.pending} waiting, ${each.admitted} admitted)`).join(", "));
  }};
}

export function queuesView(live) {
  live.want("queues");
  const nothing = element("p", {class: "dim"});
  const legend = element("ul", {class: "legend"}, ...[["filled", "used of its own"], ["borrowed", "borrowed"], ["lent", "lent, at most"], ["empty", "free"]].map(([kind, text]) =>
    element("li", {}, shape("svg", {width: 14, height: 12, "aria-hidden": "true"}, shape("rect", {width: 14, height: 12, rx: 2, class: kind})), text)));
  const cards = element("div", {class: "cards"});
  const node = element("div", {}, heading("Queues"), nothing, legend, cards);
  return {title: "Queues", node, update() {
    const all = live.queues ?? [];
    const clusterQueues = all.filter(queue => queue.namespace === "");
    const items = clusterQueues.map(queue => ({queue,
      localQueues: all.filter(each => each.namespace !== "" && each.clusterQueue === queue.name),
      usages: queue.usage.filter(each => each.nominal !== "0" || each.reserved !== "0").map(each => {
        // What others of its cohort borrow may be anybody's who has some left.
        const others = queue.cohort === "" ? [] : clusterQueues.filter(other => other !== queue && other.cohort === queue.cohort);
        const borrowed = others.flatMap(other => other.usage).filter(other => other.flavor === each.flavor && other.resource === each.resource)
          .reduce((sum, other) => sum + Number(other.borrowed), 0);
        return {...each, lent: Math.max(0, Math.min(Number(each.nominal) - Number(each.reserved), borrowed))};
      }).sort(byDevice)}));
    // Those that share quota stand together, first where most wait.
    const waiting = ({queue}) => clusterQueues.filter(other => other === queue || (queue.cohort !== "" && other.cohort === queue.cohort))
      .reduce((sum, other) => sum + Number(other.pending), 0);
    const waits = new Map(items.map(item => [item, waiting(item)]));
    items.sort((a, b) => waits.get(b) - waits.get(a) || a.queue.cohort.localeCompare(b.queue.cohort)
      || Number(b.queue.pending) - Number(a.queue.pending) || a.queue.name.localeCompare(b.queue.name));
    keyed(cards, items, item => item.queue.name, queueCard);
    setHidden(legend, items.length === 0);
    setHidden(nothing, items.length > 0);
    setText(nothing, live.refused.queues ?? (live.queues === null ? "Nothing is known yet." : "There are no queues; gangs start without quota."));
  }};
}

// ---- nodes ----

const STAGES = ["GOING", "REQUESTED", "LAUNCHED", "REGISTERED", "INITIALIZED", "USABLE"];

export function nodesView(live, route, change) {
  live.want("nodes");
  const text = element("input", {type: "search", id: "filter-nodes", autocomplete: "off", spellcheck: "false", value: route.options.get("text") ?? ""});
  const sum = element("p", {class: "dim"});
  const list = table("Nodes", ["Node", "Stage", "Type", "Devices free", "For whom", "Notes"], {class: "nodes"});
  const more = element("button", {type: "button"});
  const node = element("div", {}, heading("Nodes"), element("div", {class: "filters"}, element("p", {}, element("label", {for: "filter-nodes"}, "Filter"), text)),
    sum, list.node, element("p", {}, more));
  let shown = SHOWN;
  const context = {now: 0, names: new Map()};
  text.addEventListener("input", () => change({text: text.value}));
  more.addEventListener("click", () => { shown += SHOWN; update(context.now); });

  const whom = each => {
    const parts = [];
    for (const [uid, end] of Object.entries(each.holds)) parts.push({gang: context.names.get(uid) ?? uid, what: "held", more: `until ${clock(time(end))}`});
    for (const gang of each.expectedFor) if (!parts.some(part => part.gang === gang)) parts.push({gang, what: "expected", more: ""});
    if (each.reservedFor) parts.push({gang: each.reservedFor, what: "kept", more: ""});
    return parts;
  };
  const make = () => {
    const name = element("th", {scope: "row"}), stage = pill(), since = element("div", {class: "dim small"});
    const label = element("div"), claim = element("div", {class: "dim small"});
    name.append(label, claim);
    const type = element("div"), where = element("div", {class: "dim small"});
    const free = element("td"), gangs = element("ul", {class: "plain"}), message = element("td", {class: "wide"});
    return {node: element("tr", {}, name, element("td", {class: "still"}, stage.node, since), element("td", {class: "still"}, type, where), free, element("td", {}, gangs), message),
      update(each) {
        setText(label, nodeLabel(each));
        setText(claim, each.name ? [each.name === nodeLabel(each) ? "" : each.name, each.nodeClaim].filter(Boolean).join(", ") : "not registered");
        stage.update(each.stage);
        const at = time(each.steps.at(-1)?.at);
        setText(since, at === null ? "" : `for ${age(context.now - at)}`);
        setText(type, each.instanceType);
        setText(where, [each.nodePool, each.zone].filter(Boolean).join(", "));
        setText(free, Object.keys(each.allocatable).filter(isDevice).sort().map(device => `${each.free[device] ?? 0} of ${each.allocatable[device]} ${device.split("/")[1]}`).join(", "));
        keyed(gangs, whom(each), part => part.what + part.gang, part => {
          const link = element("a"), rest = element("span", {class: "dim"});
          return {node: element("li", {}, `${part.what} for `, link, rest), update(now) {
            const [namespace, ...gang] = now.gang.split("/");
            setText(link, now.gang);
            setAttribute(link, "href", hrefOf(namespace, gang.join("/")));
            setText(rest, now.more ? " " + now.more : "");
          }};
        });
        setText(message, [each.suspect ? `suspect until ${clock(time(each.suspectUntil))}: ${each.suspectReason}` : "", each.message].filter(Boolean).join("; "));
      }};
  };

  function update(now) {
    context.now = now;
    context.names = new Map([...live.gangs.values()].map(gang => [gang.uid, keyOf(gang)]));
    const wanted = text.value.toLowerCase();
    const found = (live.nodes ?? []).filter(each => wanted === "" || [each.name, each.nodeClaim, each.nodePool, each.zone, each.instanceType, each.stage, ...whom(each).map(part => part.gang)]
      .some(part => part.toLowerCase().includes(wanted)));
    found.sort((a, b) => STAGES.indexOf(a.stage) - STAGES.indexOf(b.stage) || (a.name || a.nodeClaim).localeCompare(b.name || b.nodeClaim));
    const coming = found.filter(each => !["USABLE", "GOING"].includes(each.stage)).length;
    const held = found.filter(each => Object.keys(each.holds).length > 0).length;
    setText(sum, live.refused.nodes ?? (live.nodes === null ? "Nothing is known yet."
      : `${found.length} ${found.length === 1 ? "node" : "nodes"}: ${coming} coming, ${held} held for gangs that wait for others`));
    keyed(list.body, found.slice(0, shown), each => each.nodeClaim || each.name, make);
    setHidden(list.node, found.length === 0);
    setHidden(more, found.length <= shown);
    setText(more, `Show more of ${found.length}`);
  }
  return {title: "Nodes", node, update};
}
