// Copy buttons beside commands: everything else on the pages works without scripts.
document.querySelectorAll("pre[data-copy]").forEach((block) => {
  if (!navigator.clipboard) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button small copy";
  const [copy, copied, byHand] = (block.dataset.copy || "Copy|Copied|Select and copy by hand").split("|");
  button.textContent = copy;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.textContent.trim());
      button.textContent = copied;
    } catch {
      button.textContent = byHand;
    }
    setTimeout(() => { button.textContent = copy; }, 2000);
  });
  block.before(button);
});

// Definitions of terms: shown on hover, on focus and at the first tap. Without scripts a term is a link with a title.
const tip = document.createElement("div");
if (document.querySelector("a.term") && "popover" in tip) {
  tip.id = "term-tip";
  tip.className = "term-tip";
  tip.setAttribute("role", "tooltip");
  tip.popover = "manual";
  document.body.append(tip);
  let shown = null;
  let closing;

  const hide = () => {
    clearTimeout(closing);
    if (!shown) return;
    shown.removeAttribute("aria-describedby");
    shown = null;
    tip.hidePopover();
  };
  const hideSoon = () => { closing = setTimeout(hide, 200); };  // time to move the pointer onto the definition
  const place = () => {
    if (!shown) return;
    const at = shown.getBoundingClientRect();
    const below = at.bottom + tip.offsetHeight + 8 < innerHeight;
    tip.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${below ? at.bottom + 4 : Math.max(8, at.top - tip.offsetHeight - 4)}px`;
  };
  const show = (link) => {
    clearTimeout(closing);
    if (shown === link) return;
    hide();
    shown = link;
    tip.textContent = link.dataset.definition;
    link.setAttribute("aria-describedby", tip.id);
    tip.showPopover();
    place();
  };

  tip.addEventListener("pointerenter", () => clearTimeout(closing));
  tip.addEventListener("pointerleave", hideSoon);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("click", (event) => { if (shown && event.target !== shown && event.target !== tip) hide(); });
  addEventListener("scroll", place, { passive: true, capture: true });
  document.querySelectorAll("a.term").forEach((link) => {
    link.dataset.definition = link.title;
    link.removeAttribute("title");
    let touched = false;
    link.addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch" && shown !== link; });
    link.addEventListener("click", (event) => {
      if (touched) { event.preventDefault(); show(link); }
      touched = false;
    });
    link.addEventListener("pointerenter", (event) => { if (event.pointerType !== "touch") show(link); });
    link.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hideSoon(); });
    link.addEventListener("focus", () => { if (!touched) show(link); });
    link.addEventListener("blur", hide);
  });
}

// Menus close at Escape and when the focus or a click goes elsewhere.
document.querySelectorAll(".top details, details.menu").forEach((menu) => {
  const leave = (event) => { if (!menu.contains(event.target)) menu.open = false; };
  document.addEventListener("click", leave);
  document.addEventListener("focusin", leave);
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
});

// An address that names something in closed details opens them.
const reveal = () => { const named = location.hash.length > 1 && document.getElementById(location.hash.slice(1))?.closest("details"); if (named) named.open = true; };
addEventListener("hashchange", reveal);
reveal();

// Drafts of the question form (form.js) end with the session: at sign-out, and where a page asks for a password.
const forget = () => Object.keys(sessionStorage).forEach((key) => {
  if (key.startsWith("assay-draft ")) sessionStorage.removeItem(key);
});
try {
  if (document.querySelector("input[type=password]")) forget();
  document.querySelector('form[action$="/logout"]')?.addEventListener("submit", forget);
} catch { /* storage is off */ }
