// What a view takes from where it stands: dark or light, and how wide it is.

const NARROW = 700;
const WIDE = 820;

// Keeps the class `night` on app.root and says "theme" whenever it may have changed.
export function followTheme(app) {
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  const update = () => {
    const inGradio = app.root.closest("gradio-app, .gradio-container") !== null;
    const dark = app.root.closest(".dark") !== null || (!inGradio && media.matches);
    app.root.classList.toggle("night", dark);
    app.touch("theme");
  };
  const observer = new MutationObserver(update);
  for (const node of [document.documentElement, document.body]) observer.observe(node, {attributes: true, attributeFilter: ["class"]});
  media.addEventListener("change", update);
  update();
}

// Keeps the classes `narrow` and `wide` on app.root, and app.narrow.
export function followWidth(app) {
  new ResizeObserver(() => {
    app.narrow = app.root.clientWidth < NARROW;
    app.root.classList.toggle("narrow", app.narrow);
    app.root.classList.toggle("wide", app.root.clientWidth >= WIDE);
  }).observe(app.root);
}
