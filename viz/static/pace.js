// Does something often enough to be read and seldom enough to be cheap: at most every `ms`, and never for more
// than a tenth of the time. The last request always gets through.

const SHARE = 10;

export class Pace {
  constructor(ms, action) {
    this.ms = ms;
    this.action = action;
    this.free = -Infinity; // when the next run may start
    this.timer = null;
  }

  ask() {
    const wait = this.free - performance.now();
    if (wait <= 0 && this.timer === null) this.now();
    else this.timer ??= setTimeout(() => this.now(), Math.max(0, wait));
  }

  now() {
    clearTimeout(this.timer);
    this.timer = null;
    const started = performance.now();
    this.action();
    const ended = performance.now();
    this.free = ended + Math.max(this.ms, SHARE * (ended - started));
  }
}
