// Keeps a search in step with the server: asks for what is new while it is live, and again after a reload, since
// the tab remembers the search's id. Asking, not listening, so that no connection is held.

const LIVE_MS = 600;
const HIDDEN_MS = 5000; // nobody looks; the server still sees that somebody is there
const RETRY_MS = 3000;
const KEY = "viasd.search";

export class SearchWire {
  // `reset()` before the first message of a search, `fold(message)` for each, `changed()` after a batch.
  constructor(root, server, {reset, fold, changed, lost}) {
    Object.assign(this, {root, server, reset, fold, changed, lost});
    this.run = null;
    this.before = null; // the search that this one took the place of
    this.epoch = null;
    this.last = 0;
    this.timer = null;
    this.live = () => false;
  }

  // Follow the search this tab had before it was reloaded.
  restore() {
    const kept = sessionStorage.getItem(KEY);
    if (kept) this.follow({run: kept, epoch: null});
  }

  follow({run, epoch}) {
    if (typeof run !== "string" || !run || (run === this.run && epoch === this.epoch)) return;
    sessionStorage.setItem(KEY, run);
    Object.assign(this, {run, epoch, last: 0, before: run === this.run ? this.before : this.run});
    this.reset();
    this.ask();
  }

  // Show the search before this one again; whether there is one.
  back() {
    const {before} = this;
    if (before) this.follow({run: before, epoch: null});
    this.before = null;
    return Boolean(before);
  }

  // Show something else; the search itself goes on on the server.
  leave() {
    clearTimeout(this.timer);
    this.run = this.epoch = this.before = null;
    sessionStorage.removeItem(KEY);
  }

  async ask() {
    clearTimeout(this.timer);
    const {run} = this;
    if (!run || !this.root.isConnected) return;
    let reply = null;
    try {
      reply = await this.server.fetch_since({run, epoch: this.epoch, last: this.last});
    } catch {
      reply = null; // the server is away for the moment
    }
    if (run === this.run) this.take(reply);
  }

  take(reply) {
    if (reply?.error) {
      const restored = this.last === 0;
      this.leave();
      this.lost(restored ? "" : reply.error); // a search forgotten since the last visit is no news
      return;
    }
    if (!reply || reply.run !== this.run || !Array.isArray(reply.events)) {
      this.timer = setTimeout(() => this.ask(), RETRY_MS);
      return;
    }
    if (reply.epoch !== this.epoch || reply.from !== this.last + 1) {
      if (this.last) this.reset();
      this.epoch = reply.epoch;
      this.last = 0;
      if (reply.from !== 1) return void this.ask();
    }
    for (const message of reply.events) this.fold(message);
    this.last = reply.seq;
    const {run} = this;
    this.changed();
    if (run !== this.run) return; // it gave way to another
    if (reply.more) this.ask();
    else if (this.live()) this.timer = setTimeout(() => this.ask(), document.hidden ? HIDDEN_MS : LIVE_MS);
  }
}
