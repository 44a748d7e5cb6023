// Before the first paint: the theme chosen last time. Without a choice the system's is taken (style.css).
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("evenbins-theme"); } catch { /* storage is off: the system's theme */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
