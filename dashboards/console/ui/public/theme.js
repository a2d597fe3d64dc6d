// Runs before the first paint, so that a chosen theme never flashes the other one.
try {
  var theme = localStorage.getItem("muster.theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch (e) {
  // Storage is blocked: the system's theme applies.
}
