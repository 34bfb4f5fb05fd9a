// Copy buttons beside commands: everything else on the pages works without scripts.
document.querySelectorAll("pre[data-copy]").forEach((block) => {
  if (!navigator.clipboard) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button small copy";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.textContent.trim());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy by hand";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  block.before(button);
});
