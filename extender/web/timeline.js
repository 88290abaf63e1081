// One gang's story as a picture and, the same, as a table: when it was created, had its quorum, was
// admitted and bound, and what each of its nodes did meanwhile.

import {age, clock, duration, element, keyed, row, setHidden, setText, shape, table, time, words} from "./dom.js";

const LANES = 40;  // the rest is in the table
const ROW = 26, BAR = 16, HEAD = 58, FOOT = 24;

const STEPS = ["REQUESTED", "LAUNCHED", "REGISTERED", "INITIALIZED", "USABLE"];
// What a node is doing from one step on.
const DOING = {REQUESTED: "being launched", LAUNCHED: "booting", REGISTERED: "initializing",
  INITIALIZED: "devices missing", USABLE: "usable"};

const short = name => name.split(".")[0];
export const nodeLabel = node => node.name ? short(node.name) : node.nodeClaim;

// When minMember members existed; null while they don't.
function quorumOf(gang) {
  const created = gang.members.filter(member => member.state !== "TERMINATING")
    .map(member => time(member.createdAt)).filter(at => at !== null).sort((a, b) => a - b);
  const at = created[Number(gang.minMember) - 1] ?? null;
  // Members that were made anew tell nothing of how it began.
  const admitted = time(gang.admittedAt);
  return at !== null && admitted !== null && at > admitted ? null : at;
}

// {events: [{at, name}], lanes: [{name, node, parts: [{from, to, kind, words}], setbacks}], start, end, over}
export function story(gang, now) {
  const created = time(gang.createdAt) ?? now;
  const quorum = quorumOf(gang);
  const admitted = time(gang.admittedAt);
  const bound = time(gang.boundAt);
  const failed = gang.state === "BACKING_OFF" ? time(gang.stateSince) : null;
  const over = bound ?? failed;
  const end = Math.max(over ?? now, created);
  const parts = [];
  const add = (from, to, kind, text) => {
    if (from !== null && (to ?? end) >= from) parts.push({from, to: to ?? end, open: to === null && over === null, kind, words: text});
  };
  if (quorum !== null || admitted === null) add(created, quorum, "members", "waiting for members");
  if (quorum !== null || admitted !== null) {
    const waits = gang.attempt > 1 ? "earlier attempts" : gang.state === "INFEASIBLE" ? "no node can be made for it"
      : gang.queue || gang.clusterQueue ? "waiting for quota" : "waiting to be admitted";
    add(quorum ?? created, admitted, gang.state === "INFEASIBLE" ? "bad" : "quota", waits);
  }
  if (admitted !== null) {
    add(admitted, bound ?? failed, failed !== null ? "bad" : "nodes", failed !== null ? `attempt ${gang.attempt}: nodes didn't come` : "waiting for nodes");
  }
  const events = [{at: created, name: "created"}];
  if (quorum !== null) events.push({at: quorum, name: "quorum"});
  if (admitted !== null) events.push({at: admitted, name: "admitted"});
  if (bound !== null) events.push({at: bound, name: "bound"});
  if (failed !== null) events.push({at: failed, name: "gave up"});

  const setbacks = new Map();
  for (const setback of gang.setbacks) {
    const key = setback.nodeClaim || setback.node || setback.code;
    setbacks.set(key, [...(setbacks.get(key) ?? []), setback]);
  }
  const lanes = gang.nodes.map(node => {
    const mine = setbacks.get(node.nodeClaim) ?? [];
    setbacks.delete(node.nodeClaim);
    const steps = node.steps.map(step => ({stage: step.stage, at: time(step.at)}));
    return {name: nodeLabel(node), node, steps, setbacks: mine,
      held: Object.keys(node.holds).length > 0,
      parts: steps.map((step, i) => {
        const to = steps[i + 1]?.at ?? null;
        const last = to === null;
        // What it was it may not be any more.
        const lost = last && node.stage !== step.stage;
        return {from: step.at, to: Math.max(step.at, to ?? end), open: last && over === null && step.stage !== "USABLE",
          kind: lost ? "bad" : step.stage.toLowerCase(), words: lost ? words(node.stage) : DOING[step.stage]};
      // Karpenter's times are in whole seconds, that of USABLE isn't.
      }).filter(part => part.kind !== "initialized" || part.open || part.to - part.from >= 1000)};
  });
  // Those that are still awaited first, then the latest: they are why it isn't bound, or wasn't sooner.
  const last = lane => lane.node.stage === "USABLE" ? lane.steps.at(-1)?.at ?? 0 : Infinity;
  lanes.sort((a, b) => (last(b) === last(a) ? 0 : last(b) > last(a) ? 1 : -1) || a.name.localeCompare(b.name));
  // Nodes that are gone again.
  for (const [key, those] of setbacks) {
    lanes.push({name: key, node: null, steps: [], held: false, setbacks: those,
      parts: [{from: time(those[0].first), to: those[0].stands ? end : time(those.at(-1).last), open: false, kind: "bad", words: words(those[0].code)}]});
  }
  return {events, parts, lanes, created, admitted, end, over: over !== null,
    deadline: gang.state === "PROVISIONING" ? time(gang.deadline) : null,
    retry: gang.state === "BACKING_OFF" ? time(gang.retryAt) : null};
}

const UNITS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800, 2419200];

function draw(told, from, width) {
  const gutter = Math.min(210, Math.round(width * 0.28));
  const shown = told.lanes.slice(0, LANES);
  const height = HEAD + ROW * (1 + shown.length) + FOOT;
  let end = told.end;
  // What is to come belongs in the picture if it doesn't make the rest too small to see.
  const ahead = told.deadline ?? told.retry;
  if (ahead !== null && ahead > end && ahead - end < 1.5 * (end - from)) end = ahead;
  const span = Math.max(1000, (end - from) * 1.04);
  const x = at => gutter + (Math.min(Math.max(at, from), from + span) - from) / span * (width - gutter - 8);
  const svg = shape("svg", {class: "story", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true"});
  const text = (left, top, words, attributes) => {
    const node = shape("text", {x: left, y: top, ...attributes}, words);
    svg.append(node);
    return node;
  };

  const unit = UNITS.find(each => span / 1000 / each <= Math.max(3, (width - gutter) / 90)) ?? UNITS.at(-1);
  for (let seconds = 0; seconds * 1000 <= span; seconds += unit) {
    const left = x(from + seconds * 1000);
    svg.append(shape("line", {x1: left, x2: left, y1: HEAD - 6, y2: height - FOOT, class: "tick"}));
    if (left + 24 < width) text(left, height - 8, seconds === 0 ? "0" : "+" + duration(seconds * 1000), {class: "dim", "text-anchor": seconds === 0 ? "start" : "middle"});
  }
  // Names of events above each other where they would meet.
  const taken = [0, 0, 0];
  const events = [];
  for (const event of told.events.filter(each => each.at >= from)) {
    const before = events.at(-1);
    if (before && x(event.at) - x(before.at) < 3) before.name += ", " + event.name;
    else events.push({...event});
  }
  for (const event of events) {
    const left = x(event.at), wide = 7.2 * event.name.length + 10;
    const at_end = left + wide > width;
    const level = Math.max(0, taken.findIndex(until => until <= (at_end ? left - wide : left)));
    taken[level] = at_end ? left + 4 : left + wide;
    svg.append(shape("line", {x1: left, x2: left, y1: 12 + 15 * level, y2: height - FOOT, class: "event"}));
    text(at_end ? left - 4 : left + 4, 12 + 15 * level, event.name, {class: "event", "text-anchor": at_end ? "end" : "start"});
  }
  if (ahead !== null && ahead <= end) {
    svg.append(shape("line", {x1: x(ahead), x2: x(ahead), y1: HEAD - 8, y2: height - FOOT, class: "ahead"}));
    text(x(ahead) - 4, HEAD - 4, told.deadline !== null ? "deadline" : "next attempt", {class: "event", "text-anchor": "end"});
  }
  const lane = (name, mark, parts, setbacks, i) => {
    const top = HEAD + ROW * i;
    const most = Math.floor((gutter - 12) / 7);
    const label = text(0, top + BAR - 3, name.length > most ? name.slice(0, most - 1) + "…" : name, {class: i === 0 ? "strong" : ""});
    label.append(shape("title", {}, name + mark));
    if (mark) text(gutter - 8, top + BAR - 3, mark, {class: "dim", "text-anchor": "end"});
    for (const part of parts) {
      if (part.to < from) continue;
      const left = x(part.from), wide = Math.max(2, x(part.to) - left);
      const bar = shape("rect", {x: left, y: top, width: wide, height: BAR, rx: 2, class: `part ${part.kind}${part.open ? " open" : ""}`},
        shape("title", {}, `${name}: ${part.words} ${duration(part.to - part.from)}, from ${clock(part.from)}`));
      svg.append(bar);
      const said = `${part.words} ${duration(part.to - part.from)}`;
      const aside = setbacks.length > 0 ? 14 : 5;
      if (wide > 6.4 * said.length + aside + 3) text(left + aside, top + BAR - 4, said, {class: "on " + part.kind});
    }
    for (const setback of setbacks) {
      const left = Math.max(gutter + 6, x(time(setback.last)));
      const mid = top + BAR / 2;
      svg.append(shape("path", {d: `M${left - 5} ${mid - 5}l10 10m0 -10l-10 10`, class: "setback" + (setback.overcome ? " overcome" : "")},
        shape("title", {}, `${words(setback.code)}: ${setback.message}`)));
    }
  };
  lane("the gang", "", told.parts, [], 0);
  shown.forEach((each, i) => lane(each.name, each.held && width > 560 ? "held" : "", each.parts, each.setbacks, i + 1));
  return svg;
}

const LEGEND = [["members", "waiting for members"], ["quota", "for quota, or to be admitted"], ["nodes", "for nodes"],
  ["requested", "being launched"], ["launched", "booting"], ["registered", "initializing"], ["initialized", "devices missing"], ["usable", "usable"], ["bad", "went wrong"],
  ["setback", "a setback"]];

// Everything that the picture shows, in words, in the order of time.
function inWords(told) {
  const lines = told.events.map(event => ({at: event.at, who: "the gang", what: event.name, more: ""}));
  for (const lane of told.lanes) {
    for (const step of lane.steps) lines.push({at: step.at, who: lane.name, what: words(step.stage), more: lane.held && step.stage === "USABLE" ? "held" : ""});
    for (const setback of lane.setbacks) {
      lines.push({at: time(setback.last), who: lane.name, what: words(setback.code),
        more: setback.message + (setback.overcome ? "; other nodes came in its place" : "")});
    }
  }
  return lines.sort((a, b) => a.at - b.at);
}

function summary(told) {
  const usable = told.lanes.filter(lane => lane.node?.stage === "USABLE").length;
  const nodes = told.lanes.filter(lane => lane.node !== null).length;
  const phases = told.parts.map(part => `${part.words} ${age(part.to - part.from)}`).join(", ");
  return `${phases}${nodes ? `; ${usable} of ${nodes} nodes usable` : ""}`;
}

// {node, update(gang, now)}
export function timeline() {
  const picture = element("div", {class: "picture", role: "img"});
  const said = element("p", {class: "dim"});
  const all = element("button", {type: "button", "aria-pressed": "true"}, "All of it");
  const late = element("button", {type: "button", "aria-pressed": "false"}, "Since it was admitted");
  const zoom = element("p", {class: "buttons", role: "group", "aria-label": "What the picture shows"}, all, late);
  const legend = element("ul", {class: "legend"}, ...LEGEND.map(([kind, text]) => element("li", {"data-kind": kind},
    shape("svg", {width: 14, height: 12, "aria-hidden": "true"}, kind === "setback" ? shape("path", {d: "M2 1l10 10m0 -10l-10 10", class: kind})
      : shape("rect", {width: 14, height: 12, rx: 2, class: "part " + kind})), text)));
  const list = table("The story as a table", ["Time", "After", "Who", "What", "Notes"]);
  const details = element("details", {}, element("summary", {}, "The same as a table"), list.node);
  const node = element("div", {}, zoom, picture, said, legend, details);
  let choice = null, latest = null;

  const choose = since => {
    choice = since;
    redraw();
  };
  all.addEventListener("click", () => choose(false));
  late.addEventListener("click", () => choose(true));

  function redraw() {
    if (latest === null || !node.isConnected) return;
    const {gang, now} = latest;
    const told = story(gang, now);
    // A long wait for quota would leave no room for the nodes.
    const waited = told.admitted === null ? 0 : told.admitted - told.created;
    const late_start = choice ?? (told.admitted !== null && waited > 4 * (told.end - told.admitted));
    setHidden(zoom, waited < 1000);
    all.setAttribute("aria-pressed", String(!late_start));
    late.setAttribute("aria-pressed", String(late_start));
    const from = late_start ? told.admitted : told.created;
    picture.replaceChildren(draw(told, from, Math.max(300, picture.clientWidth)));
    const words = summary(told);
    if (picture.getAttribute("aria-label") !== words) picture.setAttribute("aria-label", words);
    const kinds = new Set([...told.parts, ...told.lanes.flatMap(lane => lane.parts)]
      .filter(part => part.to > part.from || part.open).map(part => part.kind));
    if (told.lanes.some(lane => lane.setbacks.length > 0)) kinds.add("setback");
    for (const item of legend.children) setHidden(item, !kinds.has(item.dataset.kind));
    const hidden = told.lanes.length - LANES;
    setText(said, `From ${clock(from)}.` + (told.deadline !== null ? ` Deadline at ${clock(told.deadline)}, in ${age(told.deadline - now)}.` : "")
      + (told.retry !== null ? ` Next attempt at ${clock(told.retry)}, in ${age(told.retry - now)}.` : "")
      + (hidden > 0 ? ` The ${LANES} that came last are shown; ${hidden} more are in the table.` : ""));
    if (details.open) fillTable(told);
  }
  function fillTable(told) {
    keyed(list.body, inWords(told), line => `${line.who}/${line.what}/${line.at}`, () => {
      const cells = ["td", "td", "th", "td", "td"].map(tag => element(tag, tag === "th" ? {scope: "row"} : {}));
      return {node: row(cells), update(line) {
        [clock(line.at), line.at === told.created ? "" : "+" + duration(line.at - told.created), line.who, line.what, line.more]
          .forEach((text, i) => setText(cells[i], text));
      }};
    });
  }
  details.addEventListener("toggle", redraw);
  new ResizeObserver(redraw).observe(node);

  return {node, update(gang, now) {
    const moves = !["BOUND", "FINISHED"].includes(gang.state);
    if (latest !== null && latest.gang === gang && !moves) return;
    latest = {gang, now};
    redraw();
  }};
}
