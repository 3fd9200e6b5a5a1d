// Event handlers: order, threshold, size, search, keys, pointer, print. Texts are set as text, never as HTML.

const facts = JSON.parse(document.getElementById("facts").textContent);
const get = (id) => document.getElementById(id);
const make = (tag, look, text) => {
  const element = document.createElement(tag);
  if (look) element.className = look;
  if (text !== undefined) element.textContent = text;
  return element;
};
const named = (tag, look, t) => {
  const element = make(tag, look);
  element.append(make("bdi", "", facts.names[t]));
  return element;
};
const number = (value, digits = 2) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(digits);
const whole = (value) => value.toLocaleString("en");
const tidyPercent = (permille) => `${number(permille / 10, 1)} %`;

const startMap = () => {
  const map = new RelationMap(get("map"), get("cells"), get("cursor"), facts.names, facts.groups, unpack(facts.relations, facts.names.length));
  const size = facts.names.length;
  const byName = facts.names.map((_, t) => t);
  const compare = new Intl.Collator("en", { numeric: true, sensitivity: "base" }).compare;
  byName.sort((t, s) => compare(facts.names[t], facts.names[s]));
  const orders = { group: facts.order, name: byName, given: facts.names.map((_, t) => t) };
  get("controls").hidden = get("explorer").hidden = false;

  const setOrder = (which) => {
    const [row, column] = map.at ? map.at.map((k) => map.order[k]) : [];
    map.order = orders[which];
    map.sorted = which === "group";
    if (map.at) map.at = [map.order.indexOf(row), map.order.indexOf(column)];
    map.draw();
  };

  const read = (aloud) => {
    const box = get("readout");
    box.textContent = map.at ? "" : `${whole(size)} × ${whole(size)} cells: point at one, or use the arrow keys.`;
    if (!map.at) return;
    const [t, s] = map.at.map((k) => map.order[k]);
    if (t === s) {
      box.append(named("strong", "", t), ` (cluster ${facts.groups[t] + 1})`);
    } else {
      const value = map.value(t, s);
      box.append(named("strong", "", t), " and ", named("strong", "", s), `: correlation ${number(value)}`);
      if (Math.abs(value) < map.threshold) box.append(", hidden by the threshold");
      else box.append(facts.groups[t] === facts.groups[s] ? `, both in cluster ${facts.groups[t] + 1}` : ", in different clusters");
    }
    if (aloud) get("live").textContent = box.textContent;
  };

  const pairs = () => {
    let shown = 0;
    for (let t = 0; t < size; t++) for (let s = 0; s < t; s++) shown += Math.abs(map.value(t, s)) >= map.threshold;
    get("pairs").textContent = `${whole(shown)} of ${whole((size * (size - 1)) / 2)} pairs shown`;
  };

  // --- one task ------------------------------------------------------------------------------------------------

  const contributionsTo = (t) => {
    const list = make("ol", "contributions");
    const shares = facts.contributions ? facts.contributions[t].map(([s, permille]) => [s, permille / 1000, tidyPercent(permille)])
      : facts.names.map((_, s) => [s, map.value(t, s), number(map.value(t, s))]).filter(([s]) => s !== t)
        .sort((one, other) => Math.abs(other[1]) - Math.abs(one[1])).slice(0, 12);
    const most = Math.max(...shares.map(([, share]) => Math.abs(share)), 1e-9);
    for (const [s, share, text] of shares) {
      const item = make("li", s === t ? "self" : "");
      if (s === t) item.append(make("span", "name", "its own data"));
      else {
        const button = named("button", "name", s);
        button.type = "button";
        button.addEventListener("click", () => choose(s, true));
        item.append(button);
      }
      const bar = make("span", share < 0 ? "bar against" : "bar");
      bar.style.width = `${(100 * Math.abs(share)) / most}%`;
      item.append(make("span", "share", text), bar);
      list.append(item);
    }
    const rest = 1000 - shares.reduce((sum, [, share]) => sum + 1000 * share, 0);
    if (facts.contributions && shares.length === 12 && size > 12) {
      const item = make("li", "note");
      item.append(make("span", "name", "all other tasks"), make("span", "share", tidyPercent(rest)));
      list.append(item);
    }
    return list;
  };

  const explain = (t) => {
    const parts = [`Cluster ${facts.groups[t] + 1}`];
    if (facts.counts) parts.push(`${whole(facts.counts[t])} observation${facts.counts[t] === 1 ? "" : "s"}`);
    if (facts.gain && facts.gain[t] !== null) {
      const error = facts.error[t] === null ? "" : ` ± ${number(facts.error[t], 3)}`;
      parts.push(`gain ${facts.gain[t] < 0 ? "" : "+"}${number(facts.gain[t], 3)}${error}`);
    }
    const detail = get("detail");
    detail.textContent = "";
    detail.append(named("h3", "", t), make("p", "note", parts.join(" · ")));
    if (!facts.contributions) detail.append(make("p", "", "Contributions of tasks are not defined for this model; these are the most correlated tasks:"), contributionsTo(t));
    else if (!facts.contributions[t].length) detail.append(make("p", "", "No contributions: the prediction of this task is constant, or the task was added after the fit."));
    else {
      const own = facts.contributions[t].find(([s]) => s === t);
      const self = own ? own[1] : 0;
      detail.append(make("p", "", `Its own data contribute ${tidyPercent(self)} of its coefficients, other tasks ${tidyPercent(1000 - self)}:`), contributionsTo(t));
    }
  };

  const choose = (t, focus) => {
    map.chosen = t;
    explain(t);
    for (const button of get("found").querySelectorAll("button")) button.setAttribute("aria-current", String(Number(button.dataset.task) === t));
    map.point();
    if (focus) {
      const title = get("detail").querySelector("h3");
      title.tabIndex = -1;
      title.focus();
    }
  };

  // --- search --------------------------------------------------------------------------------------------------

  const fold = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLocaleLowerCase("en");
  const folded = facts.names.map(fold);
  const search = () => {
    const wanted = fold(get("search").value.trim());
    const hits = byName.filter((t) => folded[t].includes(wanted));
    map.found = wanted ? new Set(hits) : new Set();
    const list = get("found");
    list.textContent = "";
    for (const t of hits) {
      const button = make("button");
      button.type = "button";
      button.dataset.task = t;
      button.setAttribute("aria-current", String(map.chosen === t));
      const line = make("span", "name");
      line.append(make("span", `dot g${facts.groups[t] % 8}`), " ", make("bdi", "", facts.names[t]));
      button.append(line);
      button.addEventListener("click", () => choose(t));
      const item = make("li");
      item.append(button);
      list.append(item);
    }
    get("matches").textContent = wanted ? (hits.length ? `${whole(hits.length)} of ${whole(size)} tasks` : "No task has that in its name") : "";
    map.point();
    return hits;
  };

  // --- events --------------------------------------------------------------------------------------------------

  for (const radio of document.querySelectorAll("input[name=order]")) radio.addEventListener("change", () => setOrder(radio.value));
  get("threshold").addEventListener("input", (event) => {
    map.threshold = Number(event.target.value);
    get("threshold-value").textContent = map.threshold.toFixed(2);
    pairs();
    map.draw();
    read();
  });
  const resize = (factor) => {
    map.zoom = Math.min(12, Math.max(1, map.zoom * factor));
    map.draw();
    map.follow();
  };
  get("larger").addEventListener("click", () => resize(1.5));
  get("smaller").addEventListener("click", () => resize(1 / 1.5));
  get("search").addEventListener("input", search);
  get("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const hits = search();
    if (hits.length) choose(hits[0]);
  });

  const sheet = get("cursor");
  const move = (at, aloud) => {
    map.at = at;
    map.point();
    read(aloud);
  };
  sheet.addEventListener("pointermove", (event) => {
    const at = map.cellAt(event);
    if (at && (!map.at || at[0] !== map.at[0] || at[1] !== map.at[1])) move(at);
  });
  sheet.addEventListener("pointerleave", () => { if (document.activeElement !== sheet) move(null); });
  sheet.addEventListener("click", (event) => {
    const at = map.cellAt(event);
    if (!at) return;
    move(at);
    choose(map.order[at[0]]);
  });
  sheet.addEventListener("focus", () => { if (!map.at && sheet.matches(":focus-visible")) move([0, 0], true); });
  sheet.addEventListener("blur", () => move(null));
  sheet.addEventListener("keydown", (event) => {
    const [i, j] = map.at || [0, 0];
    const last = size - 1;
    const steps = { ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1], Home: [i, 0], End: [i, last],
      PageUp: [i - 10, j], PageDown: [i + 10, j] };
    if (event.key === "Enter" || event.key === " ") choose(map.order[i]);
    else if (steps[event.key]) {
      move(steps[event.key].map((k) => Math.min(last, Math.max(0, k))), true);
      map.follow();
    } else return;
    event.preventDefault();
  });

  const printing = (on) => {
    map.forPrint = on;
    [map.kept, map.zoom] = on ? [map.zoom, 1] : [map.zoom, map.kept || map.zoom];
    map.draw();
  };
  window.addEventListener("beforeprint", () => printing(true));
  window.addEventListener("afterprint", () => printing(false));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => map.draw());
  let width = 0;
  new ResizeObserver(() => {
    if (get("map").clientWidth === width) return;
    width = get("map").clientWidth;
    map.draw();
  }).observe(get("map"));

  setOrder("group");
  pairs();
  search();
  read();
};

const startTable = () => {
  // The table of gains, sorted by a click on a heading.
  const table = get("gains-table");
  const body = table.tBodies[0];
  const compare = new Intl.Collator("en", { numeric: true, sensitivity: "base" }).compare;
  const numeric = (text) => Number(text.replace("−", "-"));
  for (const head of table.querySelectorAll("th[data-sort]")) {
    const button = make("button", "", head.textContent);
    button.type = "button";
    head.textContent = "";
    head.append(button);
    button.addEventListener("click", () => {
      const key = head.dataset.sort;
      const up = head.getAttribute("aria-sort") === "descending" || (key === "name" && head.getAttribute("aria-sort") !== "ascending");
      const value = (row) => (key === "gain" ? Number(row.dataset.gain) : key === "name" ? row.cells[0].textContent : numeric(row.cells[key].textContent));
      const rows = [...body.rows].sort((one, other) => (key === "name" ? compare(value(one), value(other)) : value(one) - value(other)));
      body.append(...(up ? rows : rows.reverse()));
      for (const other of table.querySelectorAll("th[data-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
    });
  }
};

window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.dataset.was = each.open; each.open = true; }));
window.addEventListener("afterprint", () => document.querySelectorAll("details").forEach((each) => { each.open = each.dataset.was === "true"; }));
if (facts.relations) startMap();
if (get("gains-table")) startTable();
