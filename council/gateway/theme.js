// Light or dark as the address says (as Ray's dashboard does for Grafana), else as the browser has it.
const theme = new URLSearchParams(location.search).get("theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
