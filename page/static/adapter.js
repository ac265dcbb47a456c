// Gradio streams differences and applies them in place, so an object handed out once changes under its reader.
// Messages therefore travel as text, and each value that is read is a fresh object.
const unpacked = (value) =>
  value && typeof value.packed === "string" ? {...value, packed: undefined, events: JSON.parse(value.packed)} : value;
const readable = {
  get value() {
    return unpacked(props.value);
  },
  get plotly_url() {
    return props.plotly_url;
  },
};
