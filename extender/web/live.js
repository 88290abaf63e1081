// What REST says, kept up to date: gangs by their watch, queues and nodes by asking again and again
// while a view shows them, since a browser has six connections to a host for all of its tabs. A tab
// that nobody sees has none.

const FIRST_PAUSE = 500, LONGEST_PAUSE = 30000, POLL = 2000;
const PAGE = 500;

export class Live {
  // `changed` is called after each change; `gangs` are by "namespace/name".
  constructor(changed) {
    this.changed = changed;
    this.gangs = new Map();
    this.known = false;    // that `gangs` is all there are
    this.version = null;   // of what `gangs` is
    this.queues = null;    // lists, or null
    this.nodes = null;
    this.refused = {};     // by list: why it isn't shown
    this.link = {live: false, words: "connecting"};
    this.needsToken = null;  // why, or null
    this.namespace = "";
    this.wanted = new Set();
    this.pause = FIRST_PAUSE;
    document.addEventListener("visibilitychange", () => this.restart());
    addEventListener("online", () => this.restart());
  }

  start() {
    this.follow();
    this.poll();
  }
  // Only gangs of this namespace from now on; "" is all.
  setNamespace(namespace) {
    if (namespace === this.namespace) return;
    this.namespace = namespace;
    this.forget();
    this.restart();
  }
  // The lists that are asked for again and again: "queues", "nodes".
  want(...lists) {
    this.wanted = new Set(lists);
    this.pollNow?.();
  }
  // sessionStorage: of this tab, gone with it, and there after a reload; a script of somebody else,
  // who could read it, isn't let in by the Content-Security-Policy.
  get token() { return sessionStorage.getItem("token"); }
  setToken(token) {
    if (token === null) sessionStorage.removeItem("token");
    else sessionStorage.setItem("token", token);
    this.forget();
    this.queues = this.nodes = null;
    this.needsToken = null;
    this.restart();
    this.pollNow?.();
  }

  forget() {
    this.gangs.clear();
    this.known = false;
    this.version = null;
  }
  restart() {
    this.pause = FIRST_PAUSE;
    this.connection?.abort();
    this.wake?.();
  }
  say(live, words) {
    this.link = {live, words};
    this.changed();
  }
  request(path, signal) {
    const token = this.token;
    return fetch(path, {signal, cache: "no-store", headers: token ? {Authorization: "Bearer " + token} : {}});
  }
  static async trouble(answer) {
    const problem = await answer.json().catch(() => ({}));
    return {status: answer.status, detail: problem.detail ?? `the service answers ${answer.status}`,
      after: 1000 * Number(answer.headers.get("Retry-After") ?? 0)};
  }
  asleep(milliseconds) {
    return new Promise(done => {
      const timer = setTimeout(done, milliseconds);
      this.wake = () => { clearTimeout(timer); done(); };
    });
  }

  async follow() {
    for (;;) {
      if (document.hidden) await this.asleep(3600000);
      const connection = this.connection = new AbortController();
      const began = Date.now();
      let trouble = null;
      try {
        trouble = await this.read(connection.signal);
      } catch (error) {
        if (!connection.signal.aborted) trouble = {status: 0, detail: "no connection"};
      }
      if (connection.signal.aborted) continue;
      // One that ended by itself, as each does after some minutes, is opened again at once.
      if (trouble === null && Date.now() - began > 5000) continue;
      if (trouble?.status === 401) {
        this.needsToken = this.token === null ? "The service shows gangs to whoever may read their PodGroups."
          : `This token isn't accepted: ${trouble.detail}.`;
        this.forget();
        this.say(false, "needs a token");
        await this.asleep(3600000);
        continue;
      }
      const pause = Math.max(trouble?.after ?? 0, this.pause * (0.75 + Math.random() / 2));
      this.pause = Math.min(LONGEST_PAUSE, 2 * this.pause);
      if (trouble?.status === 403) this.refused.gangs = trouble.detail;
      const seen = this.seen ? `; what is shown is as of ${new Date(this.seen).toLocaleTimeString([], {hour12: false})}` : "";
      this.say(false, trouble?.status === 403 ? "not allowed: " + trouble.detail
        : `${trouble?.detail ?? "connection lost"}, trying again${seen}`);
      await this.asleep(pause);
    }
  }

  // Until the watch ends: null, or what is wrong. First all gangs are listed, from then on only what
  // changed is told, also by a watch that is opened again.
  async read(signal) {
    const query = this.namespace ? `&namespace=${encodeURIComponent(this.namespace)}` : "";
    if (this.version === null) {
      const trouble = await this.list(signal, query);
      if (trouble !== null) return trouble;
    }
    const answer = await this.request(`v1/gangs?watch=true&since=${this.version}${query}`, signal);
    if (answer.status === 410) this.version = null;
    if (!answer.ok) return Live.trouble(answer);
    this.welcome();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "";;) {
      const {value, done} = await reader.read();
      if (done || signal.aborted) return null;
      this.pause = FIRST_PAUSE;
      this.seen = Date.now();
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const event = JSON.parse(line);
        const key = `${event.gang.namespace}/${event.gang.name}`;
        this.version = event.version;
        if (event.type === "DELETED") this.gangs.delete(key);
        else this.gangs.set(key, event.gang);
      }
      this.changed();
    }
  }
  // Null, or what is wrong.
  async list(signal, query) {
    const listed = new Map();
    let version = null, from = "";
    do {
      const answer = await this.request(`v1/gangs?limit=${PAGE}${query}${from}`, signal);
      if (!answer.ok) return Live.trouble(answer);
      const page = await answer.json();
      for (const gang of page.gangs) listed.set(`${gang.namespace}/${gang.name}`, gang);
      version ??= page.version;
      from = page.continue ? `&continue=${encodeURIComponent(page.continue)}` : "";
    } while (from);
    this.gangs = listed;
    this.version = version;
    return null;
  }
  welcome() {
    this.needsToken = null;
    this.known = true;
    this.seen = Date.now();
    delete this.refused.gangs;
    this.say(true, "live");
  }

  async poll() {
    for (;;) {
      for (const list of this.wanted) {
        if (document.hidden || this.needsToken !== null) break;
        try {
          const answer = await this.request(`v1/${list}`);
          if (answer.ok) {
            this[list] = (await answer.json())[list];
            delete this.refused[list];
          } else {
            this.refused[list] = (await Live.trouble(answer)).detail;
            if (answer.status === 403) this[list] = null;
          }
        } catch (error) {
          // The watch may not have noticed yet.
          if (this.link.live) this.connection?.abort();
        }
        this.changed();
      }
      await new Promise(done => {
        const timer = setTimeout(done, POLL);
        this.pollNow = () => { clearTimeout(timer); done(); };
      });
    }
  }
}

// Whom each gang waits behind: by "namespace/name" {place, of, queue}.
export function line(queues) {
  const places = new Map();
  for (const queue of queues ?? []) {
    if (queue.namespace) continue;  // a LocalQueue tells of the same line
    queue.pendingGangs.forEach((gang, i) => places.set(`${gang.namespace}/${gang.name}`,
      {place: i + 1, of: Number(queue.pending), queue: queue.name}));
  }
  return places;
}
