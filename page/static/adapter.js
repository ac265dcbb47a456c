// Gradio streams differences and applies them in place, so an object handed out once changes under its reader.
// Messages therefore travel as text, and each value that is read is a fresh object.
const unpacked = (value) => {
  if (!value || typeof value.packed !== "string") return value;
  const {packed, ...batch} = value;
  return {...batch, events: JSON.parse(packed)};
};
const readable = {
  get value() {
    return unpacked(props.value);
  },
  get plotly_url() {
    return props.plotly_url;
  },
};
const reader = {
  fetch_since: async (asked) => unpacked(await server.fetch_since(asked)),
};
