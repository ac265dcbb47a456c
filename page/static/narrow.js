() => {
  if (window.innerWidth < 768) {
    document.querySelector("#viasd-sidebar.open .toggle-button, .sidebar.open .toggle-button")?.click();
  }
}
