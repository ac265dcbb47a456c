const line = element.querySelector(".viasd-notice");
const show = () => {
  const notice = props.value || {};
  line.textContent = notice.text || "";
  line.dataset.level = notice.level || "info";
};
watch("value", show);
show();
