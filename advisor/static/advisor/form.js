// The question form. Without this script every field is a plain text box or list.
const form = document.getElementById("question");
let soon = 0;  // the timer after which a draft is kept
const DRAFT = `assay-draft ${location.pathname}${location.search}`;

// Pickers: a text box with the names of the catalog (combobox pattern). Several names are separated by commas.
const MOST = 50;
function picker(input) {
  const names = [...document.getElementById(input.getAttribute("list")).options].map((option) => option.value);
  const several = "several" in input.dataset;
  const box = document.createElement("div");
  const list = document.createElement("ul");
  box.className = "pick";
  list.id = `${input.id}-names`;
  list.hidden = true;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", form.dataset.suggestions);
  input.removeAttribute("list");
  input.replaceWith(box);
  box.append(input, list);
  for (const [name, value] of Object.entries({
    role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id,
  })) input.setAttribute(name, value);
  let at = -1;

  const parts = () => (several ? input.value.split(",") : [input.value]);
  const close = () => {
    list.hidden = true;
    at = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const open = () => {
    const chosen = parts().map((part) => part.trim());
    const typed = chosen.pop().toLowerCase();
    const found = names.filter((name) => name.toLowerCase().includes(typed) && !chosen.includes(name));
    found.sort((a, b) => b.toLowerCase().startsWith(typed) - a.toLowerCase().startsWith(typed));
    list.replaceChildren(...found.slice(0, MOST).map((name, index) => {
      const item = document.createElement("li");
      item.id = `${list.id}-${index}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", "false");
      item.textContent = name;
      return item;
    }));
    at = -1;
    input.removeAttribute("aria-activedescendant");
    const done = !found.length || (found.length === 1 && found[0].toLowerCase() === typed);
    if (done) { close(); return; }
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
  };
  const mark = (to) => {
    const items = [...list.children];
    if (!items.length) return;
    at = (to + items.length) % items.length;
    items.forEach((item, index) => item.setAttribute("aria-selected", String(index === at)));
    items[at].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", items[at].id);
  };
  const take = (item) => {
    const before = parts().slice(0, -1).map((part) => part.trim());
    input.value = [...before, item.textContent].join(", ");
    close();
    input.dispatchEvent(new Event("input", { bubbles: true }));
    close();
  };

  input.addEventListener("input", (event) => { if (event.isTrusted) open(); });
  input.addEventListener("click", () => { if (list.hidden) open(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) open();
      if (!list.hidden) mark(at + (event.key === "ArrowDown" ? 1 : -1 + (at < 0)));
    } else if (event.key === "Enter" && !list.hidden && at >= 0) {
      event.preventDefault();
      take(list.children[at]);
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      close();
    }
  });
  list.addEventListener("pointerdown", (event) => {
    event.preventDefault();  // the focus stays in the text box
    const item = event.target.closest("li");
    if (item) take(item);
  });
}

// The summary of a closed group: what is set in it, else what applies by default.
const SHOWN = 40;
function valueOf(field) {
  const controls = [...field.querySelectorAll("input, select, textarea")];
  if (!field.matches("fieldset")) return controls[0].value.trim();
  return controls.filter((each) => each.checked).map((each) => each.value).join(",");
}
function textOf(field) {
  const chosen = [...field.querySelectorAll("input:checked")].map((each) => each.parentElement.textContent.trim());
  const select = field.querySelector("select");
  const text = chosen.join(", ") || select?.selectedOptions[0].textContent || valueOf(field).replace(/\s+/g, " ");
  return text.length > SHOWN ? `${text.slice(0, SHOWN - 1)}…` : text;
}
function summarize(group) {
  const said = group.querySelector(".said");
  const set = [...group.querySelectorAll("[data-field]")].filter((field) => {
    const value = valueOf(field);
    return value && value !== field.dataset.usual;
  });
  const label = (field) => field.querySelector("label, legend").textContent;
  said.textContent = set.map((field) => `${label(field)}: ${textOf(field)}`).join(" · ") || said.dataset.usual;
  said.classList.toggle("set", set.length > 0);
}

// Drafts: entries survive Back and reload in this tab. assay.js forgets them at sign-out.
function entries() {
  return [...new FormData(form)].filter(([name, value]) => name !== "csrfmiddlewaretoken" && typeof value === "string");
}
function keep(sent) {
  try {
    sessionStorage.setItem(DRAFT, JSON.stringify({ sent, entries: entries() }));
  } catch { /* no room, or storage is off: the browser's own memory of the form remains */ }
}
function fill(values) {
  const kept = new Map();
  values.forEach(([name, value]) => kept.set(name, [...(kept.get(name) || []), value]));
  for (const control of form.elements) {
    if (!control.name || control.name === "csrfmiddlewaretoken" || control.type === "file") continue;
    const wanted = kept.get(control.name) || [];
    if (control.type === "checkbox" || control.type === "radio") control.checked = wanted.includes(control.value);
    else control.value = wanted[0] ?? "";
  }
}
function draft() {
  try {
    return JSON.parse(sessionStorage.getItem(DRAFT));
  } catch {
    return null;
  }
}
function restore() {
  if ("bound" in form.dataset) { keep(false); return; }
  const saved = draft();
  const again = performance.getEntriesByType("navigation")[0]?.type !== "navigate";
  if (!saved || !again && (saved.sent || location.search)) {
    sessionStorage.removeItem(DRAFT);
    return;
  }
  const before = JSON.stringify(entries());
  fitRows(saved.entries);
  fill(saved.entries);
  if (JSON.stringify(entries()) === before) return;
  const note = form.querySelector(".draft");
  note.hidden = false;
  note.querySelector("button").addEventListener("click", () => {
    form.reset();
    note.hidden = true;
    refresh();
    clearTimeout(soon);
    soon = 0;
    sessionStorage.removeItem(DRAFT);
  });
}
function refresh() {
  form.querySelectorAll(".more").forEach(summarize);
  if (form.elements.model?.value) form.dispatchEvent(new Event("input", { bubbles: true }));
}

// Rows of a portfolio: added and removed here; without this script the buttons send the form.
const jobs = document.getElementById("jobs");
function renumber() {
  jobs.querySelectorAll(".job-number").forEach((number, index) => { number.textContent = index + 1; });
}
function addJob() {
  const used = [...jobs.children].map((job) => Number(job.dataset.job.slice(3)));
  const next = `row${Math.max(0, ...used) + 1}`;
  const html = document.getElementById("new-job").innerHTML.replaceAll("rowNEW", next);
  jobs.insertAdjacentHTML("beforeend", html);
  const job = jobs.lastElementChild;
  job.querySelectorAll("input[list]").forEach(picker);
  renumber();
  return job;
}
function rows() {
  if (!jobs) return;
  form.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-add], [data-remove]");
    if (!button) return;
    event.preventDefault();
    if (button.matches("[data-add]")) {
      addJob().querySelector("input").focus();
    } else {
      button.closest(".job").remove();
      renumber();
    }
    form.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
// A draft may have more rows than the page, or other ones.
function fitRows(values) {
  if (!jobs) return;
  const wanted = new Set(values.map(([name]) => /^row\d+/.exec(name)?.[0]).filter(Boolean));
  for (const job of [...jobs.children]) if (wanted.size && !wanted.has(job.dataset.job)) job.remove();
  while (jobs.children.length < wanted.size) addJob();
  [...jobs.children].forEach((job, index) => {
    const name = [...wanted][index];
    if (!name || job.dataset.job === name) return;
    const twin = document.createElement("div");
    twin.innerHTML = document.getElementById("new-job").innerHTML.replaceAll("rowNEW", name);
    job.replaceWith(twin.firstElementChild);
  });
  renumber();
}

if (form) {
  rows();
  try { restore(); } catch { /* storage is off */ }
  form.querySelectorAll("input[list]").forEach(picker);
  form.addEventListener("input", (event) => {
    const group = event.target.closest?.(".more");
    if (group) summarize(group);
    clearTimeout(soon);
    soon = setTimeout(keepNow, 250);
  });
  const keepNow = () => { clearTimeout(soon); soon = 0; keep(false); };
  form.addEventListener("submit", () => { clearTimeout(soon); soon = 0; keep(true); });
  addEventListener("pagehide", () => { if (soon) keepNow(); });
  document.getElementById("errors")?.focus();
  document.querySelectorAll("#errors a").forEach((link) => link.addEventListener("click", (event) => {
    const field = document.getElementById(link.hash.slice(1));
    if (!field) return;
    event.preventDefault();
    const group = field.closest("details");
    if (group) group.open = true;
    field.focus();
    field.scrollIntoView({ block: "center" });
  }));
  addEventListener("load", refresh);
}
