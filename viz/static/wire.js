// Batches of messages in: duplicates are ignored, gaps are fetched from the server, order is kept.

const MOST_WAITING = 500;
const RETRY_MS = [300, 1000, 3000];

export class Receiver {
  constructor(app, server) {
    this.app = app;
    this.server = server;
    this.last = new Map(); // run id -> number of its last message folded
    this.waiting = new Map(); // run id -> batches that arrived while a gap is being fetched
    this.shown = new Set(); // requests to show a run that were followed
  }

  receive(value) {
    if (!isBatch(value)) return;
    const {app} = this;
    const isNew = !app.stores.has(value.run);
    const late = value.fresh === true && app.stores.size > 0; // a run or a file has been opened meanwhile
    const store = app.storeFor(value.run);
    if (isNew) {
      this.last.set(value.run, 0);
      if (!late) app.liveRun = value.run;
    }
    if ((isNew && !late) || this.wantsShow(value)) app.show(store);
    if (this.waiting.has(value.run)) this.keep(value);
    else this.accept(store, value);
  }

  wantsShow({run, show, seq}) {
    if (!show) return false;
    const key = `${run} ${show === true ? seq : show}`;
    if (show !== true && this.shown.has(key)) return false;
    this.shown.add(key);
    return this.app.store.id !== run;
  }

  accept(store, {run, from, seq, events, t}) {
    const last = this.last.get(run);
    if (seq <= last) {
      if (events.length) this.app.stats.duplicates += 1;
      return;
    }
    if (from > last + 1) {
      this.app.stats.gaps += 1;
      this.waiting.set(run, []);
      this.fetch(store, 0);
      this.keep({run, from, seq, events, t});
      return;
    }
    this.foldAll(store, events.slice(last + 1 - from));
    this.last.set(run, seq);
    if (typeof t === "number") this.app.stats.waiting.push(1000 * t);
  }

  foldAll(store, events) {
    for (const event of events) store.fold(event);
    this.app.stats.messages += events.length;
    if (store === this.app.store) this.app.touch("data", "status");
  }

  keep(value) {
    const list = this.waiting.get(value.run);
    list.push(value);
    if (list.length > MOST_WAITING) list.shift();
  }

  async fetch(store, attempt) {
    const run = store.id;
    let reply = null;
    try {
      reply = this.server ? await this.server.fetch_since({run, last: this.last.get(run)}) : null;
    } catch (error) {
      reply = {error: `The server did not answer (${error.message}).`};
    }
    if (isBatch(reply) && reply.run === run && reply.from === this.last.get(run) + 1) {
      this.foldAll(store, reply.events);
      this.last.set(run, reply.seq);
      if (reply.more && reply.events.length) return this.fetch(store, 0);
      return this.catchUp(store);
    }
    if (!reply?.error && this.server && attempt < RETRY_MS.length) {
      setTimeout(() => this.fetch(store, attempt + 1), RETRY_MS[attempt]);
      return undefined;
    }
    this.waiting.delete(run);
    this.app.fail(reply?.error || "Some messages of this run were lost and could not be fetched; start the run again or reload the page.");
    return undefined;
  }

  catchUp(store) {
    const waiting = this.waiting.get(store.id) || [];
    this.waiting.delete(store.id);
    for (const value of waiting) {
      if (this.waiting.has(store.id)) this.keep(value);
      else this.accept(store, value);
    }
  }
}

function isBatch(value) {
  return value !== null && typeof value === "object" && typeof value.run === "string" && value.run !== ""
    && Number.isSafeInteger(value.from) && Number.isSafeInteger(value.seq) && Array.isArray(value.events);
}
