// Plays a recorded run by its own clock. Pure client side: it only moves the head.

import { endOf } from "./summary.js";

const LONGEST_GAP_US = 1.2e6; // a pause of the user is not played in full
const UNTIMED_US = 150000;

export class Player {
  constructor(app) {
    this.app = app;
    this.playing = false;
    this.speed = 1;
    this.clock = 0;
    this.before = 0;
  }

  sync(changes) {
    if (changes.has("run")) this.pause();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    const {app} = this;
    if (!app.store.cycles.length) return;
    if (app.head === null) {
      app.head = 0;
      app.touch("head");
    }
    this.playing = true;
    this.clock = this.timeOf(app.headIndex);
    this.before = performance.now();
    app.touch("play");
    requestAnimationFrame(() => this.tick());
  }

  pause() {
    this.playing = false;
    this.app.touch("play");
  }

  // Microseconds at which a cycle was done.
  timeOf(index) {
    const row = this.app.store.cycles[index];
    const end = endOf(row);
    return end > 0 ? end : index * UNTIMED_US;
  }

  tick() {
    if (!this.playing) return;
    const now = performance.now();
    this.clock += (now - this.before) * 1000 * this.speed;
    this.before = now;
    const {app} = this;
    let index = app.headIndex;
    const last = app.store.cycles.length - 1;
    while (index < last && this.due(index + 1)) index += 1;
    app.setHead(index);
    if (index >= last) this.pause();
    else requestAnimationFrame(() => this.tick());
  }

  due(index) {
    const at = this.timeOf(index);
    this.clock = Math.max(this.clock, at - LONGEST_GAP_US);
    return at <= this.clock;
  }
}
