// Makes the pages easier to use; without it everything works, too.

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  if ((event.key === "/" && !typing) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
    event.preventDefault();
    document.getElementById("jump")?.focus();
  }
});
