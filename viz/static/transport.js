// Buttons of the replay: play, step by cycle, speed, follow; and where the view stands.

import { h, setIcon, setText } from "./dom.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

export class Transport {
  constructor(app, player) {
    this.app = app;
    this.player = player;
    const button = (name, label, action) => {
      const node = h("button.icon", {type: "button", "aria-label": label, title: label, onclick: action});
      setIcon(node, name);
      return node;
    };
    this.play = button("play", "Play the recording", () => player.toggle());
    this.speed = h("select.speed", {"aria-label": "Replay speed", onchange: () => {
      player.speed = Number(this.speed.value);
    }}, SPEEDS.map((speed) => h("option", {value: speed, selected: speed === 1}, `${speed}×`)));
    this.where = h("span.where", {});
    this.follow = h("button.toggle", {type: "button", "aria-pressed": "true", title: "Keep the newest text in view", onclick: () => this.toggleFollow()}, "Follow");
    this.node = h("div.transport", {role: "group", "aria-label": "Replay"},
      button("first", "First cycle", () => this.step(-Infinity)),
      button("back", "Previous cycle", () => this.step(-1)),
      this.play,
      button("next", "Next cycle", () => this.step(1)),
      button("last", "Last cycle", () => this.step(Infinity)),
      this.speed, this.where, this.follow);
  }

  step(by) {
    const {app} = this;
    this.player.pause();
    app.unpin();
    const next = app.headIndex + by;
    app.setHead(next === Infinity ? null : Math.max(0, next));
  }

  toggleFollow() {
    const on = !this.app.options.follow;
    if (on) this.app.setHead(null);
    this.app.setOption("follow", on);
  }

  sync() {
    const {app, player} = this;
    const {store} = app;
    const count = store.cycles.length;
    setIcon(this.play, player.playing ? "pause" : "play");
    this.play.setAttribute("aria-label", player.playing ? "Pause the replay" : "Play the recording");
    for (const node of this.node.querySelectorAll("button.icon")) node.disabled = !count;
    this.follow.hidden = !store.live;
    this.follow.setAttribute("aria-pressed", String(app.options.follow && app.head === null));
    if (!count) {
      setText(this.where, "no cycles yet");
      return;
    }
    const token = store.spans[app.headIndex][1] - 1;
    const total = store.live ? `${count} so far` : count;
    setText(this.where, `cycle ${app.headIndex + 1} of ${total} · ${placeBefore(store, token) + 1} tokens`);
  }
}

function placeBefore(store, index) {
  for (let at = index; at >= 0; at -= 1) {
    if (store.tokens[at].place !== null) return store.tokens[at].place;
  }
  return -1;
}
