// Interactive charts. A page works without this file: each figure holds the chart drawn on the server, and a table.
// A figure with data-chart names the JSON of its data; the library is loaded when a chart comes near the viewport.
// Colors are CSS properties (var(--ink)), which SVG attributes may use: dark mode and print then need no second drawing.

const UNITS = { usd: { before: "$" }, ms: { after: " ms" }, gib: { after: " GiB" }, percent: { after: " %" } };
const SCALES = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e4, "k"]];
const HUES = 8;  // --c0 to --c7
const SYMBOLS = {
  ranked: "circle", owned: "diamond", api: "triangle", estimate: "circle", measured: "rect",
  missed: "path://M0 1.5L1.5 0L5 3.5L8.5 0L10 1.5L6.5 5L10 8.5L8.5 10L5 6.5L1.5 10L0 8.5L3.5 5Z",
};
const SIZES = { ranked: 18, owned: 22, api: 13, estimate: 8, missed: 9, measured: 8 };
const INK = "var(--ink)", MUTED = "var(--muted)", LINE = "var(--line)", SURFACE = "var(--surface)";
const FONT = 12.5;
const LANGUAGE = document.documentElement.lang || "en";  // of numbers; the data are plain
const WIDE = 44;  // characters of a line of a tooltip

let library;
const load = (address) => (library ??= import(address));

// --- numbers and text -------------------------------------------------------------------------------------------

function digits(value) {
  if (value === 0) return "0";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString(LANGUAGE);
  const plain = String(Number(value.toPrecision(3)));
  if (plain.includes("e")) return value.toPrecision(3);
  return Number(plain).toLocaleString(LANGUAGE, { maximumFractionDigits: 20 });
}

export function figure(value, unit) {
  const { before = "", after = "" } = UNITS[unit] ?? {};
  return `${before}${digits(value)}${after}`;
}

function tick(value, unit) {
  const [factor, letter] = SCALES.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
  const divisor = letter === "k" ? 1e3 : factor;
  return `${UNITS[unit]?.before ?? ""}${Number((value / divisor).toPrecision(3)).toLocaleString(LANGUAGE)}${letter}`;
}

function wrapped(text, width = WIDE) {
  const lines = [""];
  for (const word of text.replace(/[{}|]/g, " ").split(" ")) {
    const last = lines.at(-1);
    if (last && last.length + word.length >= width) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines.join("\n");
}

const quoted = (cell) => {
  const text = cell === null || cell === undefined ? "" : String(cell);
  const safe = /^[=+\-@\t\r]/.test(text) && typeof cell !== "number" ? `'${text}` : text;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};
export const csv = (rows) => rows.map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";

// --- what every drawing shares ----------------------------------------------------------------------------------

function axisOf(axis, extra = {}) {
  const customValues = axis.log ? logTicks(extra) : undefined;
  return {
    type: axis.log ? "log" : "value",
    name: axis.name + (axis.log ? " (log)" : ""),
    nameTextStyle: { color: INK, fontSize: FONT },
    axisLabel: { color: MUTED, fontSize: FONT, hideOverlap: true, showMaxLabel: axis.log || axis.unit === "count" ? undefined : false, customValues, formatter: (value) => tick(value, axis.unit) },
    axisLine: { show: true, lineStyle: { color: "var(--edge)" } },
    axisTick: { show: false, customValues },
    splitLine: { lineStyle: { color: LINE }, customValues, showMaxLine: false },
    ...extra,
  };
}

function sideways(axis, extra) { return axisOf(axis, { nameLocation: "middle", nameGap: 30, ...extra }); }
function upright(axis, extra) {
  return axisOf(axis, { nameLocation: "end", nameGap: 22, nameTextStyle: { color: INK, fontSize: FONT, align: "left", padding: [0, 0, 0, -56] }, ...extra });
}

const BASE = {  // without the aria of the library, which makes the canvas an image and hides its keys from screen readers
  animation: false,
  textStyle: { fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", color: INK },
  tooltip: {
    renderMode: "richText", trigger: "item", confine: true, transitionDuration: 0,
    backgroundColor: SURFACE, borderColor: "var(--edge)", borderWidth: 1, padding: 9, shadowBlur: 0,
    textStyle: { color: INK, fontSize: 13, lineHeight: 18 },
    formatter: ({ data }) => (data?.tip ? wrapped(data.tip) : ""),
  },
};

// Around the values, at least a factor of 3 on a logarithmic axis.
function span(values, log) {
  const known = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (!known.length) return {};
  let low = Math.min(...known), high = Math.max(...known);
  if (!log) {
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return { min: low >= 0 && low < (high - low) * 0.5 ? 0 : low - room, max: high + room };
  }
  [low, high] = [low / 1.25, high * 1.25];
  if (high / low < 3) { const middle = Math.sqrt(low * high); [low, high] = [middle / Math.sqrt(3), middle * Math.sqrt(3)]; }
  return { min: low, max: high };
}

// Round values for the ticks of a logarithmic axis: 1, 2 and 5 of each decade; more on a short axis, fewer on a long one.
function logTicks({ min, max }) {
  if (!(min > 0)) return undefined;
  const values = [], decades = Math.log10(max / min);
  const steps = decades > 3.5 ? [1] : decades > 1 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  for (let decade = Math.floor(Math.log10(min)); decade <= Math.ceil(Math.log10(max)); decade++) {
    for (const step of steps) {
      const value = Number(`${step}e${decade}`);
      if (value >= min && value <= max) values.push(value);
    }
  }
  return values;
}

function limitLine(name, axis, value, end) {
  return { name, [axis]: value, lineStyle: { color: "var(--bad)", type: "dashed", width: 1.5 }, label: { formatter: name, color: "var(--bad)", fontSize: FONT, position: end } };
}

// --- kinds ------------------------------------------------------------------------------------------------------
// Each gives the chart's option, the points that arrow keys reach ({series, index, text, href}), the names of the
// colors, the rows of the CSV file, and its height.

const kinds = { xy, bars, stack, frontier };

function xy(data, { width }) {
  const series = [], items = [], legend = [], rows = [["series", data.x.name, data.y.name, "to", "text"]];
  const isBand = (each) => each.type === "band";
  const xs = [], ys = [];
  for (const each of data.series) {
    const place = series.length;
    const color = `var(${each.color})`;
    for (const point of each.points) {
      xs.push(point[0]);
      ys.push(...(isBand(each) ? point.slice(1, 3) : each.type === "columns" ? point.slice(2, 4) : [point[1]]));
      if (each.type === "columns") xs.push(point[1]);
    }
    if (!isBand(each)) legend.push({ name: each.name, color, dashed: each.dashed, line: each.type === "line", symbol: each.symbol });
    if (isBand(each)) {
      series.push({
        type: "custom", name: each.name, silent: true, z: 1, data: [[each.points[0][0], each.points[0][1]]], clip: true,
        renderItem: (_, api) => ({
          type: "polygon", style: { fill: color, opacity: 0.15 },
          shape: { points: [...each.points.map(([x, low]) => api.coord([x, low])), ...each.points.toReversed().map(([x, , high]) => api.coord([x, high]))] },
        }),
      });
      rows.push(...each.points.map(([x, low, high]) => [each.name, x, low, high, ""]));
    } else if (each.type === "columns") {
      series.push({
        type: "custom", name: each.name, clip: true,
        data: each.points.map(([left, right, low, high, tip]) => ({ value: [left, low, right, high], tip })),
        renderItem: (_, api) => {
          const [x, y] = api.coord([api.value(0), api.value(3)]), [right, floor] = api.coord([api.value(2), api.value(1)]);
          return { type: "rect", shape: { x, y, width: Math.max(right - x - 0.5, 1), height: floor - y }, style: { fill: color }, emphasis: { style: { stroke: "var(--focus)", lineWidth: 2 } } };
        },
      });
      rows.push(...each.points.map(([left, , low, high, text]) => [each.name, left + 1, low, high, text]));
    } else {
      const line = each.type === "line";
      series.push({
        type: line ? "line" : "scatter", name: each.name, silent: Boolean(each.silent), z: line ? 2 : 4, step: each.step,
        symbol: each.symbol ?? "circle", symbolSize: line ? 7 : each.size ?? 11,
        showSymbol: !line || each.dots || each.points.length === 1,
        lineStyle: { color, width: 2, type: each.dashed ? "dashed" : "solid" },
        itemStyle: { color, borderColor: SURFACE, borderWidth: 1, opacity: 1 },
        emphasis: { scale: 1.3, itemStyle: { color, borderColor: "var(--focus)", borderWidth: 2 }, lineStyle: { color, width: 2 } },
        triggerLineEvent: false,
        data: each.points.map(([x, y, tip, href], n) => ({
          value: [x, y], tip, href,
          label: each.labels?.[n] ? { show: true, formatter: each.labels[n], position: each.place ?? "top", color: each.place === "inside" ? SURFACE : INK, fontSize: each.place === "inside" ? 11 : FONT } : undefined, cursor: href ? "pointer" : "default",
        })),
        labelLayout: { hideOverlap: true },
      });
      rows.push(...each.points.map(([x, y, text]) => [each.name, x, y, "", text]));
    }
    if (!isBand(each) && !each.silent) each.points.forEach((point, index) => items.push({ series: place, index, text: point[each.type === "columns" ? 4 : 2], href: point[3] }));
  }
  const limits = (data.limits ?? []).map((each) => limitLine(each.name, each.axis === "x" ? "xAxis" : "yAxis", each.value, "end"));
  if (limits.length) series.push({ type: "line", data: [], silent: true, markLine: { symbol: "none", silent: true, data: limits } });
  (data.limits ?? []).forEach((each) => (each.axis === "x" ? xs : ys).push(each.value));
  const isDate = data.x.unit === "date";
  const x = sideways(data.x, { ...(isDate ? { type: "time", axisLabel: { color: MUTED, fontSize: FONT, hideOverlap: true } } : data.x.min > 0 ? { min: data.x.min, max: data.x.max } : data.x.log ? span(xs, true) : { min: Math.min(...xs), max: Math.max(...xs) }), });
  x.splitLine = { ...x.splitLine, show: data.x.log };
  const y = upright(data.y, data.y.zero ? { min: Math.min(0, ...ys) } : data.y.min > 0 ? { min: data.y.min, max: data.y.max } : span(ys, data.y.log));
  const option = { ...BASE, grid: { left: 64, right: 24, top: 50, bottom: 52 }, xAxis: x, yAxis: y, series };
  if (data.series.some((each) => each.type === "line") && !isDate) option.tooltip.axisPointer = { type: "none" };
  const named = legend.filter((each, n) => legend.findIndex((other) => other.name === each.name) === n);
  return { option, items, legend: named.length > 1 ? named : [], rows, height: data.height ?? (width < 620 ? 280 : 360), zooms: true };
}

// One bar of parts; a table beside it names them.
function stack(data) {
  const total = Math.max(...data.rows.map((row) => row.to));
  const renderItem = (params, api) => {
    const row = data.rows[params.dataIndex], { y, height } = params.coordSys;
    const x = api.coord([row.from, 0])[0], wide = Math.max(api.coord([row.to, 0])[0] - x - 1.5, 1);
    const fits = wide > row.name.length * 7 + 8 && !["--free", "--ink"].includes(row.color);
    return {
      type: "group",
      children: [
        { type: "rect", shape: { x, y, width: wide, height }, style: { fill: `var(${row.color})` }, emphasis: { style: { stroke: "var(--focus)", lineWidth: 3 } } },
        ...(fits ? [{ type: "text", silent: true, style: { text: row.name, x: x + wide / 2, y: y + height / 2, align: "center", verticalAlign: "middle", fill: SURFACE, fontSize: FONT } }] : []),
      ],
    };
  };
  const option = {
    ...BASE,
    grid: { left: 6, right: 22, top: 6, bottom: 46 },
    xAxis: sideways(data.value, { min: 0, max: total, splitLine: { show: false } }),
    yAxis: { type: "category", data: [""], show: false },
    series: [{ type: "custom", renderItem, encode: { x: [1, 2], y: 0 }, data: data.rows.map((row) => ({ value: [0, row.from, row.to], tip: row.text })) }],
  };
  return { option, items: data.rows.map((row, index) => ({ series: 0, index, text: row.text })), legend: [], rows: csvOfBars(data), height: 96 };
}

const csvOfBars = (data) => [["name", `from, ${data.value.name}`, `to, ${data.value.name}`, "text"], ...data.rows.map((row) => [row.name, row.from, row.to, row.text])];

function bars(data, { width }) {
  const narrow = width < 520, names = narrow ? Math.round(width * 0.36) : 230;
  const log = data.value.log;
  const item = (params, api) => {
    const row = data.rows[params.dataIndex];
    const start = api.coord([row.from, api.value(0)]), end = api.coord([row.to, api.value(0)]);
    const height = Math.min(api.size([0, 1])[1] * 0.66, 22), x = Math.min(start[0], end[0]), y = start[1] - height / 2;
    const color = `var(${row.color})`, wide = Math.max(Math.abs(end[0] - start[0]), 1.5);
    return {
      type: "group",
      children: [
        { type: "rect", shape: { x: params.coordSys.x, y: y - 4, width: params.coordSys.width, height: height + 8 }, style: { fill: "transparent" } },
        { type: "rect", shape: { x, y, width: wide, height }, style: row.outline ? { fill: "transparent", stroke: color, lineWidth: 1.5, lineDash: [4, 3] } : { fill: color }, emphasis: { style: { stroke: "var(--focus)", lineWidth: 2 } } },
        { type: "text", style: { text: row.label, x: x + wide + 6, y: start[1], verticalAlign: "middle", fill: MUTED, fontSize: FONT } },
      ],
    };
  };
  const ends = data.rows.flatMap((row) => [row.from, row.to]);
  const high = Math.max(...ends), tornado = data.rows.every((row) => row.from > 0) && !log;
  const low = tornado ? Math.max(0, Math.min(...ends) - (high - Math.min(...ends)) * 0.04) : 0;
  const longest = Math.max(...data.rows.map((row) => row.label.length));
  const option = {
    ...BASE,
    grid: { left: names, right: Math.min(longest * 7 + 12, width * 0.34), top: 8, bottom: 46 },
    xAxis: sideways(data.value, { ...(log ? span(ends, true) : { min: low, max: high }), splitNumber: narrow ? 2 : 5 }),
    yAxis: {
      type: "category", inverse: true, data: data.rows.map((row) => row.name), axisTick: { show: false },
      axisLine: { lineStyle: { color: "var(--edge)" } },
      axisLabel: { color: INK, fontSize: FONT, interval: 0, width: names - 12, overflow: "break", lineHeight: 14 },
    },
    series: [{ type: "custom", renderItem: item, encode: { x: [1, 2], y: 0 }, data: data.rows.map((row, n) => ({ value: [n, row.from, row.to], tip: row.text })) }],
  };
  return {
    option,
    items: data.rows.map((row, index) => ({ series: 0, index, text: row.text })),
    legend: [],
    rows: csvOfBars(data),
    height: Math.max(data.rows.length * (data.rows.length > 8 ? 28 : 32) + 60, 130),
  };
}

// --- price vs. speed --------------------------------------------------------------------------------------------

// The points that no other point beats on both axes, in the order of x: the rule of the server for any two metrics.
export function frontierOf(points, x, y) {
  const simulated = points.filter((each) => each.state === "ranked" || each.state === "owned");
  const passing = points.filter((each) => each.state === "estimate");
  const all = points.filter((each) => each.state === "missed");
  const pool = [simulated, passing, all].find((each) => each.length) ?? [];
  const sign = (axis) => (axis.better === "low" ? 1 : -1);
  const sorted = pool.toSorted((a, b) => sign(y) * (a.y - b.y) || sign(x) * (a.x - b.x));
  const kept = [];
  let best = Infinity;
  for (const point of sorted) {
    if (sign(x) * point.x < best) { kept.push(point); best = sign(x) * point.x; }
  }
  return kept.toSorted((a, b) => a.x - b.x);
}

// The cheapest simulated deployment at this speed or more; points are not interpolated.
export function cheapestAt(points, speed) {
  const fast = points.filter((each) => (each.state === "ranked" || each.state === "owned") && each.speed >= speed && each.cost !== null);
  return fast.toSorted((a, b) => a.cost - b.cost || b.speed - a.speed)[0] ?? null;
}

function frontierState(data) {
  return { x: data.x, y: data.y, xLog: true, yLog: true, color: "chip", ranges: true, measured: false, off: new Set() };
}

function pointsOf(data, state) {
  const at = (key) => data.metrics.findIndex((metric) => metric.key === key);
  const [xAt, yAt] = [at(state.x), at(state.y)];
  return data.rows
    .filter((row) => state.measured || row.state !== "measured")
    .map((row) => ({ ...row, x: row.figures[xAt] ?? null, y: row.figures[yAt] ?? null }))
    .filter((row) => row.x !== null && row.y !== null && (!state.xLog || row.x > 0) && (!state.yLog || row.y > 0));
}

function textOf(row, data, metrics) {
  const start = row.rank ? `${row.rank}. ` : "";
  const parts = metrics.map((metric) => {
    const ends = row.ranges?.[metric.key], value = row.figures[data.metrics.indexOf(metric)];
    const range = ends ? ` (90%: ${figure(ends[0], metric.unit)} to ${figure(ends[1], metric.unit)})` : "";
    return `${metric.name.replace(/, (ms|W)$/, "")} ${figure(value, metric.unit)}${range}`;
  });
  return `${start}${row.label}: ${parts.join(", ")}; ${data.states[row.state]}${row.note ? `, ${row.note}` : ""}`;
}

function groupOf(row, data, by) {
  if (!row.chip) return row.state === "api" ? "chip not published" : "other";
  const chip = data.chips[row.chip];
  return by === "vendor" ? chip?.vendor || "other" : chip?.name ?? row.chip;
}

function frontier(data, { width, state }) {
  const metric = (key) => data.metrics.find((each) => each.key === key);
  const x = metric(state.x), y = metric(state.y);
  const everything = pointsOf(data, state);
  const counts = new Map();  // ranked options first: their chips get a color of their own
  for (const row of everything.toSorted((a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9))) {
    const group = groupOf(row, data, state.color);
    counts.set(group, (counts.get(group) ?? 0) + 1);
  }
  const names = [...counts.keys()];
  const own = names.length <= HUES ? names : names.slice(0, HUES - 1);
  const nameOf = (row) => { const group = groupOf(row, data, state.color); return own.includes(group) ? group : "others"; };
  const legend = own.map((name, n) => ({ name, color: `var(--c${n})` }));
  if (own.length < names.length) legend.push({ name: "others", color: "var(--host)" });
  const colors = new Map(legend.map((each) => [each.name, each.color]));
  const points = everything.filter((row) => !state.off.has(nameOf(row)));
  const best = frontierOf(points, x, y);
  const drawing = ["estimate", "missed", "measured", "api", "ranked", "owned"];
  const ordered = points.toSorted((a, b) => drawing.indexOf(a.state) - drawing.indexOf(b.state) || (b.rank ?? 1e9) - (a.rank ?? 1e9));
  const solid = (row) => ["ranked", "owned", "missed"].includes(row.state);
  const marks = ordered.map((row) => {
    const color = colors.get(nameOf(row));
    return {
      value: [row.x, row.y], href: row.href ?? (row.rank ? `${data.base}${row.rank}` : undefined),
      tip: textOf(row, data, [x, y]), name: row.label,
      symbol: SYMBOLS[row.state], symbolSize: row.rank && row.state === "api" ? 20 : SIZES[row.state] - (row.rank ?? 0) / 20,  // of overlapping ranks, the larger mark keeps its label
      itemStyle: solid(row)
        ? { color, borderColor: SURFACE, borderWidth: row.state === "missed" ? 0 : 1.5, opacity: row.state === "missed" ? 0.45 : 1 }
        : { color: row.state === "measured" ? "transparent" : SURFACE, borderColor: color, borderWidth: row.state === "api" ? 2 : 1.4, opacity: row.state === "estimate" ? 0.8 : 1 },
      emphasis: { itemStyle: { color: solid(row) ? color : SURFACE, borderColor: "var(--focus)", borderWidth: 3, opacity: 1 } },
      label: { show: Boolean(row.rank), formatter: String(row.rank ?? ""), color: row.state === "api" ? INK : SURFACE, fontSize: 11, fontWeight: 700, offset: row.state === "api" ? [0, 3] : [0, 0] },
      cursor: row.rank || row.href ? "pointer" : "default",
    };
  });
  const ranged = state.ranges ? points.filter((row) => row.ranges && (row.ranges[x.key] || row.ranges[y.key])) : [];
  const whiskers = {
    type: "custom", silent: true, z: 2, clip: true, data: ranged.map((row) => [row.x, row.y]),
    renderItem: (params, api) => {
      const row = ranged[params.dataIndex], color = colors.get(nameOf(row)), children = [];
      const line = (from, to) => children.push({ type: "line", shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, style: { stroke: color, lineWidth: 1.25, opacity: 0.55 } });
      const [across, up] = [row.ranges[x.key], row.ranges[y.key]];
      if (across) line(api.coord([across[0], row.y]), api.coord([across[1], row.y]));
      if (up) line(api.coord([row.x, up[0]]), api.coord([row.x, up[1]]));
      return { type: "group", children };
    },
  };
  const limits = [[x, "xAxis"], [y, "yAxis"]].filter(([each]) => each.limit).map(([each, axis]) => limitLine(`${each.limit.name} ${figure(each.limit.value, each.unit)}`, axis, each.limit.value, axis === "xAxis" ? "end" : "insideEndTop"));
  const edge = {
    type: "line", silent: true, showSymbol: false, z: 1, step: x.better === "low" ? "end" : "start",
    lineStyle: { color: "var(--accent)", width: 1.75, opacity: 0.6 }, data: best.map((row) => [row.x, row.y]),
    markLine: limits.length ? { symbol: "none", silent: true, data: limits } : undefined,
  };
  const xs = [...points.map((row) => row.x), ...(x.limit ? [x.limit.value] : [])];
  const ys = [...points.map((row) => row.y), ...(y.limit ? [y.limit.value] : [])];
  const option = {
    ...BASE,
    grid: { left: 64, right: 20, top: 50, bottom: 52 },
    xAxis: sideways({ ...x, log: state.xLog }, { ...span(xs, state.xLog), splitNumber: width < 520 ? 3 : 6 }),
    yAxis: upright({ ...y, log: state.yLog }, span(ys, state.yLog)),
    series: [edge, whiskers, { type: "scatter", z: 3, data: marks, labelLayout: { hideOverlap: true }, emphasis: { scale: 1.25 } }],
  };
  const reached = marks.map((mark, index) => ({ series: 2, index, text: mark.tip, href: mark.href, at: mark.value, state: ordered[index].state }));
  const items = reached.toSorted((a, b) => a.at[0] - b.at[0] || a.at[1] - b.at[1]);
  const header = ["deployment", "accelerator", "state", "rank", ...data.metrics.flatMap((each) => [each.name, `${each.name}, low`, `${each.name}, high`]), "note"];
  const rows = [header, ...points.map((row) => [
    row.label, row.chip, data.states[row.state], row.rank, ...data.metrics.flatMap((each, n) => [row.figures[n], ...(row.ranges?.[each.key] ?? [null, null])]), row.note,
  ])];
  return { option, items, legend, rows, height: width < 520 ? 340 : width < 760 ? 340 : 420, zooms: true, best, states: new Set(points.map((row) => row.state)) };
}

// --- the figure -------------------------------------------------------------------------------------------------

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key in made && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
};
const button = (text, act, more = {}) => {
  const made = element("button", { type: "button", class: "button small", ...more }, text);
  made.addEventListener("click", act);
  return made;
};

// The light colors of the stylesheet, for exports: documents are white.
function lightColors() {
  const colors = {};
  for (const sheet of document.styleSheets) {
    let rules = [];
    try { rules = sheet.cssRules; } catch { continue; }
    for (const rule of rules) {
      if (rule.selectorText !== ":root") continue;
      for (const name of rule.style) if (name.startsWith("--")) colors[name] ??= rule.style.getPropertyValue(name).trim();
    }
  }
  return colors;
}

function save(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

class Figure {
  constructor(figure, echarts) {
    this.figure = figure;
    this.echarts = echarts;
    this.title = figure.dataset.title;
    this.data = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
    this.state = this.data.kind === "frontier" ? frontierState(this.data) : {};
    this.at = -1;
    this.build();
    this.draw();
    if (this.before) this.keepFocus(this.before.href);
  }

  // Whoever was on a point of the server's picture stays on it.
  keepFocus(href) {
    this.canvas.focus({ preventScroll: true });
    const place = href ? this.drawn.items.findIndex((item) => item.href === href) : -1;
    if (place >= 0) this.show(place);
  }

  build() {
    const picture = this.figure.querySelector(".picture");
    this.canvas = element("div", {
      class: "chart-canvas", tabindex: "0", role: "application", "aria-roledescription": "chart",
      "aria-label": `${this.title}. Arrow keys move between points${this.data.kind === "frontier" ? ", Enter opens an option" : ""}.`,
    });
    this.said = element("p", { class: "unseen", "aria-live": "polite" });
    this.legend = element("div", { class: "chart-legend", role: "group", "aria-label": "Colors" });
    this.controls = element("div", { class: "chart-controls" });
    picture.after(this.controls, this.canvas, this.legend, this.said, this.tools());
    const focused = picture.contains(document.activeElement) ? document.activeElement : null;
    picture.hidden = true;  // replaced; without scripts it stays
    this.before = focused && { href: focused.getAttribute("href") };
    if (this.data.kind === "frontier") this.frontierControls();
    this.chart = this.echarts.init(this.canvas, null, { renderer: "svg", height: 400 });
    this.chart.on("click", ({ data }) => { if (data?.href) location.assign(data.href); });
    this.chart.on("datazoom", () => { this.reset.hidden = false; });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    addEventListener("beforeprint", () => this.leave());
  }

  drawing(width = this.canvas.clientWidth || 640) {
    return kinds[this.data.kind](this.data, { width, state: this.state });
  }

  draw() {
    const drawn = this.drawing();
    this.drawn = drawn;
    this.width = this.canvas.clientWidth;
    this.at = -1;
    if (drawn.zooms && matchMedia("(pointer: fine)").matches) {
      drawn.option.dataZoom = [{ type: "inside", xAxisIndex: 0, zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, filterMode: "none" }, { type: "inside", yAxisIndex: 0, zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, filterMode: "none" }];
    }
    this.canvas.style.height = `${drawn.height}px`;
    this.chart.resize({ width: "auto", height: drawn.height });
    this.chart.setOption(drawn.option, { notMerge: true });
    this.reset.hidden = true;
    const shapes = this.figure.querySelector("ul.legend");
    if (shapes && this.data.kind !== "frontier") shapes.hidden = drawn.legend.length > 0;
    shapes?.querySelectorAll("[data-state]").forEach((each) => { each.hidden = !drawn.states?.has(each.dataset.state); });
    this.drawLegend(this.data.legend === false ? [] : drawn.legend);
  }

  resize() {
    if (this.canvas.clientWidth && this.canvas.clientWidth !== this.width) this.draw();
  }

  drawLegend(names) {
    const filters = this.data.kind === "frontier";
    const focused = [...this.legend.children].indexOf(document.activeElement);
    this.legend.replaceChildren(...names.map(({ name, color, dashed, line, symbol }) => {
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      swatch.setAttribute("viewBox", "0 0 16 16");
      swatch.setAttribute("aria-hidden", "true");
      const path = symbol?.startsWith("path://") && symbol.slice(7);
      const shape = document.createElementNS(swatch.namespaceURI, line || path ? "path" : "circle");
      const given = path ? { d: path, fill: color, transform: "translate(3 3)" } : line ? { d: "M0 8H16", stroke: color, "stroke-width": 3, ...(dashed ? { "stroke-dasharray": "4 3" } : {}) } : { cx: 8, cy: 8, r: 6, fill: color };
      for (const [key, value] of Object.entries(given)) shape.setAttribute(key, value);
      swatch.append(shape);
      if (!filters) return element("span", { class: "chart-name" }, swatch, name);
      const toggle = button("", () => this.toggle(name), { class: "chart-name", "aria-pressed": String(!this.state.off.has(name)) });
      toggle.append(swatch, name);
      return toggle;
    }));
    this.legend.children[focused]?.focus();
  }

  toggle(name) {
    const { off } = this.state;
    if (!off.delete(name)) off.add(name);
    this.draw();
  }

  // --- keyboard

  key(event) {
    const { items } = this.drawn;
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey || !items.length) return;
    if (event.key in steps) {
      event.preventDefault();
      const last = items.length - 1, step = steps[event.key];
      if (this.data.kind === "frontier" && this.at < 0) this.at = items.findIndex((item) => item.href) - 1;  // start at the ranked ones
      this.show(Math.max(0, Math.min(last, step === -Infinity ? 0 : step === Infinity ? last : this.at + step)));
    } else if (event.key === "Enter" && items[this.at]?.href) {
      location.assign(items[this.at].href);
    } else if (event.key === "Escape") {
      this.leave();
    }
  }

  show(at) {
    this.leave();
    this.at = at;
    const { series, index, text, href } = this.drawn.items[at];
    this.chart.dispatchAction({ type: "highlight", seriesIndex: series, dataIndex: index });
    this.chart.dispatchAction({ type: "showTip", seriesIndex: series, dataIndex: index });
    this.said.textContent = `${text}${href ? ". Enter opens it." : ""}`;
  }

  leave() {
    const item = this.drawn?.items[this.at];
    if (item) this.chart.dispatchAction({ type: "downplay", seriesIndex: item.series, dataIndex: item.index });
    this.chart.dispatchAction({ type: "hideTip" });
  }

  // --- controls of the price-speed chart

  select(label, name, choices, said = label) {
    const box = element("select", { "aria-label": said }, ...choices.map(([value, text]) => element("option", { value }, text)));
    box.value = this.state[name];
    box.addEventListener("change", () => { this.state[name] = box.value; this.state.off.clear(); this.draw(); this.answer(); });
    return element("label", {}, label, box);
  }

  check(label, name, said = label) {
    const box = element("input", { type: "checkbox", checked: this.state[name], "aria-label": said });
    box.addEventListener("change", () => { this.state[name] = box.checked; this.draw(); });
    return element("label", { class: "check" }, box, label);
  }

  frontierControls() {
    const { data } = this;
    const axes = data.metrics.map((metric) => [metric.key, metric.name]);
    this.controls.append(
      this.select("Horizontal", "x", axes, "Horizontal axis"), this.check("log", "xLog", "logarithmic horizontal axis"),
      this.select("Vertical", "y", axes, "Vertical axis"), this.check("log", "yLog", "logarithmic vertical axis"),
      this.select("Color", "color", [["chip", "chip"], ["vendor", "vendor"]]), this.check("90% ranges", "ranges"),
    );
    if (data.rows.some((row) => row.state === "measured")) this.controls.append(this.check("measured runs", "measured"));
    if (!data.metrics.some((metric) => metric.key === "output_tokens_per_s_per_user")) return;
    this.speed = element("input", { type: "number", min: "0", step: "any", inputmode: "decimal" });
    this.found = element("output", { class: "chart-answer" });
    this.speed.addEventListener("input", () => this.answer());
    this.controls.append(element("label", {}, "Cheapest at (tokens/s per user)", this.speed), this.found);
  }

  answer() {
    if (!this.speed) return;
    const speed = Number(this.speed.value);
    if (!(speed > 0)) { this.found.replaceChildren(); return; }
    const { data } = this, at = (key) => data.metrics.findIndex((metric) => metric.key === key);
    const asked = data.metrics[at(this.state.y)].unit === "usd" ? this.state.y : at("usd_per_mtok_blended") >= 0 ? "usd_per_mtok_blended" : "usd_per_mtok_output";
    const cost = data.metrics[at(asked)], speedAt = at("output_tokens_per_s_per_user");
    const points = data.rows.map((row) => ({ ...row, speed: row.figures[speedAt] ?? 0, cost: row.figures[at(asked)] ?? null }));
    const best = cheapestAt(points, speed);
    if (!best) { this.found.replaceChildren(`No ranked option reaches ${figure(speed)} tokens/s per user.`); return; }
    const name = best.rank ? element("a", { href: `${data.base}${best.rank}` }, `${best.rank}. ${best.label}`) : best.label;
    this.found.replaceChildren(name, `: ${cost.name} ${figure(best.cost, cost.unit)} at ${figure(best.speed)} tokens/s per user. The cheapest ranked option at that speed or more at the load asked for; not interpolated.`);
    const place = this.drawn.items.findIndex((item) => item.href === `${data.base}${best.rank}`);
    if (place >= 0) { this.leave(); this.at = place; const { series, index } = this.drawn.items[place]; this.chart.dispatchAction({ type: "highlight", seriesIndex: series, dataIndex: index }); }
  }

  // --- export

  tools() {
    this.reset = button("Reset zoom", () => this.draw(), { hidden: true });
    const name = this.figure.id;
    return element("div", { class: "chart-tools" },
      this.reset,
      button("SVG", () => save(`${name}.svg`, this.picture(), "image/svg+xml"), { "aria-label": `Save ${this.title} as SVG` }),
      button("PNG", () => this.savePng(`${name}.png`), { "aria-label": `Save ${this.title} as PNG` }),
      button("CSV", () => save(`${name}.csv`, csv(this.drawn.rows), "text/csv"), { "aria-label": `Save ${this.title} as CSV` }));
  }

  // A standalone SVG with title and legend, in the light colors.
  picture() {
    const width = 960, drawn = this.drawing(width), top = 34, row = 20;
    const shown = drawn.legend.filter(({ name }) => !this.state.off?.has(name));
    const height = drawn.height + top + Math.ceil(shown.length / 4) * row + 8;
    const offline = this.echarts.init(null, null, { renderer: "svg", ssr: true, width, height });
    const grid = { ...drawn.option.grid, top: drawn.option.grid.top + top, bottom: drawn.option.grid.bottom + height - drawn.height - top };
    offline.setOption({ ...drawn.option, grid });
    const colors = lightColors();
    const escaped = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
    const text = (x, y, words, more = "") => `<text x="${x}" y="${y}" font-family="system-ui, sans-serif" font-size="13" fill="var(--ink)" ${more}>${escaped(words)}</text>`;
    const names = shown.map(({ name, color }, n) => {
      const x = 64 + (n % 4) * 222, y = drawn.height + top + Math.floor(n / 4) * row + 6;
      return `<circle cx="${x}" cy="${y}" r="5" fill="${color}"/>${text(x + 12, y + 4, name)}`;
    }).join("");
    const drawnText = offline.renderToSVGString().replace(/<\/svg>\s*$/, `${text(16, 22, this.title, 'font-weight="bold"')}${names}</svg>`);
    offline.dispose();
    const start = drawnText.indexOf(">") + 1;
    const paper = `<rect width="${width}" height="${height}" fill="#fff"/>`;
    return `${drawnText.slice(0, start)}${paper}${drawnText.slice(start)}`.replace(/var\((--[\w-]+)\)/g, (_, name) => colors[name] ?? "#000");
  }

  savePng(name) {
    const source = this.picture(), image = new Image();
    image.addEventListener("load", () => {
      const canvas = element("canvas", { width: image.naturalWidth * 2, height: image.naturalHeight * 2 });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((content) => save(name, content, "image/png"));
    });
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;  // the policy allows data: images
  }
}

// --- start ------------------------------------------------------------------------------------------------------

async function enhance(figure) {
  if (figure.dataset.drawn) return;
  figure.dataset.drawn = "loading";
  try {
    const echarts = await load(figure.dataset.library);
    new Figure(figure, echarts);
    figure.dataset.drawn = "yes";
  } catch (error) {
    figure.dataset.drawn = "no";  // the chart of the server stays
    console.error("The interactive chart could not be drawn.", error);
  }
}

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    enhance(target);
  }
}, { rootMargin: "300px" });

function watch() {
  document.querySelectorAll("figure[data-chart]:not([data-drawn])").forEach((each) => near.observe(each));
}
watch();
document.addEventListener("htmx:afterSettle", watch);
